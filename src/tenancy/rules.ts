import { invalid } from '../core/errors.ts'
import { hideSecrets, isSecretName } from '../core/free-objects.ts'
import { isJsonObject } from '../core/json.ts'
import { maxObjectSize } from '../core/schema.ts'
import type { Organization } from './organizations/contract.ts'
import type { Partner } from './partners/contract.ts'

type JsonObject = Record<string, unknown>

/** Merges a patch into an object (RFC 7396): objects key by key, null removes a key. */
export function mergePatch(present: JsonObject, patch: JsonObject): JsonObject {
  const result = new Map(Object.entries(present))
  for (const [key, value] of Object.entries(patch)) {
    const before = result.get(key)
    if (value === null || value === undefined) result.delete(key)
    else result.set(key, isJsonObject(value) ? mergePatch(isJsonObject(before) ? before : {}, value) : value)
  }
  return Object.fromEntries(result)
}

/** The same for free settings, with the size limit on the merged result. @throws invalid_request */
export function mergeSettings(present: JsonObject, patch: JsonObject): JsonObject {
  const settings = mergePatch(present, patch)
  if (JSON.stringify(settings).length <= maxObjectSize) return settings
  throw invalid([{ path: 'body.settings', message: 'would be more than 16 KiB of JSON' }])
}

/** Fields that the audit log leaves out entirely. */
const secretFields = new Set(['ssoConfig'])
const stamps = new Set(['updatedAt'])

/**
 * The differences for the audit log: objects key by key, only the changed keys. What is taken for a secret is reported
 * without its values, in fields that are free: the names of others say nothing about their values.
 */
export function difference(
  before: object,
  after: object,
  isFree: (field: string) => boolean = () => true,
): { before: JsonObject; after: JsonObject } {
  const was: JsonObject = {}
  const is: JsonObject = {}
  const [old, fresh] = [before as JsonObject, after as JsonObject]
  for (const key of new Set([...Object.keys(old), ...Object.keys(fresh)])) {
    if (stamps.has(key) || JSON.stringify(old[key]) === JSON.stringify(fresh[key])) continue
    const free = isFree(key)
    const within =
      isJsonObject(old[key]) && isJsonObject(fresh[key])
        ? difference(old[key], fresh[key], () => free)
        : undefined
    const isSecret = secretFields.has(key) || isSecretName(key)
    const shown = (value: unknown) =>
      !free ? value : value === null || !isSecret ? hideSecrets(value) : '********'
    const [one, other] = [within?.before ?? old[key], within?.after ?? fresh[key]]
    if (one !== undefined) was[key] = shown(one)
    if (other !== undefined) is[key] = shown(other)
  }
  return { before: was, after: is }
}

/** A value without what is taken for a secret in it, and that, with its place. */
export function separateSecrets(value: unknown): { rest: unknown; secrets: [string, unknown][] } {
  if (!Array.isArray(value) && !isJsonObject(value)) return { rest: value, secrets: [] }
  const secrets: [string, unknown][] = []
  const rest: [string, unknown][] = []
  for (const [key, item] of Object.entries(value)) {
    if (!Array.isArray(value) && item !== null && isSecretName(key)) secrets.push([key, item])
    else {
      const within = separateSecrets(item)
      rest.push([key, within.rest])
      secrets.push(...within.secrets.map(([at, one]): [string, unknown] => [JSON.stringify([key, at]), one]))
    }
  }
  const whole = Array.isArray(value) ? rest.map(([, item]) => item) : Object.fromEntries(rest)
  return { rest: whole, secrets }
}

/** What each status of a tenant means for access. `ended`: that of its users, programs and new devices is revoked for good. */
const access: Readonly<Record<Partner['status'] | Organization['status'], 'pending' | 'usable' | 'ended'>> = {
  pending: 'pending',
  active: 'usable',
  trial: 'usable',
  suspended: 'ended',
  churned: 'ended',
}

const accessOf = (status: string) => access[status as keyof typeof access]

export const usableStatuses = Object.keys(access).filter((status) => accessOf(status) === 'usable')

/** Whether people and programs may use a tenant. */
export const isUsable = (status: string, deletedAt: string | null = null): boolean =>
  deletedAt === null && accessOf(status) === 'usable'

/** Whether access to a tenant has ended. It has not where the tenant still waits for its approval. */
export const hasEnded = (status: string, deletedAt: string | null): boolean =>
  deletedAt !== null || accessOf(status) === 'ended'

type Statused = { status: string }

/** Whether a change has ended the access to a tenant. */
export const endsAccess = (before: Statused, after: Statused): boolean =>
  after.status !== before.status && accessOf(after.status) === 'ended'

/** An organization and its partner, as queries name their columns. */
export type TenantColumns = {
  org_status: string
  org_deleted_at: string | null
  partner_status: string
  partner_deleted_at: string | null
}

/** Whether an organization may be used, which takes a usable partner. */
export const isTenantUsable = (row: TenantColumns): boolean =>
  isUsable(row.org_status, row.org_deleted_at) && isUsable(row.partner_status, row.partner_deleted_at)
