import { alertSeverity } from '../alerts/contract.ts'
import { chainOf, systemChain } from '../audit/rules.ts'
import { errors, refusalText } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import { deviceStatus } from '../devices/contract.ts'
import type { AccessDecision } from '../identity/rules.ts'
import { webhookStatus } from '../webhooks/contract.ts'
import { type Overview, verdicts } from './contract.ts'

type Part<Name extends keyof Overview> = NonNullable<Overview[Name]>

const sum = (numbers: number[]): number => numbers.reduce((all, one) => all + one, 0)

/** Every key with its count, 0 included. */
const counts = <Key extends string>(keys: readonly Key[], countOf: (key: Key) => number) =>
  Object.fromEntries(keys.map((key) => [key, countOf(key)])) as Record<Key, number>

export function deviceCounts(
  rows: readonly { status: string; devices: number; reported: number }[],
): Part<'devices'> {
  const byStatus = counts(deviceStatus.options, (status) =>
    sum(rows.filter((row) => row.status === status).map(({ devices }) => devices)),
  )
  const reported = sum(rows.map((row) => row.reported))
  return {
    total: sum(Object.values(byStatus)) - byStatus.decommissioned,
    byStatus,
    heartbeatsPerSecond: Math.round((reported / 60) * 100) / 100,
  }
}

export function alertCounts(
  rows: readonly { status: string; severity: string; alerts: number }[],
): Part<'alerts'> {
  const of = (fits: (row: (typeof rows)[number]) => boolean) =>
    sum(rows.filter(fits).map(({ alerts }) => alerts))
  return {
    active: of(({ status }) => status === 'active'),
    acknowledged: of(({ status }) => status === 'acknowledged'),
    bySeverity: counts(alertSeverity.options, (severity) => of((row) => row.severity === severity)),
  }
}

export const webhookCounts = (
  rows: readonly { status: string; webhooks: number; succeeded: number; failed: number }[],
  waiting: number,
): Part<'webhooks'> => ({
  byStatus: counts(webhookStatus.options, (status) =>
    sum(rows.filter((row) => row.status === status).map(({ webhooks }) => webhooks)),
  ),
  succeeded: sum(rows.map(({ succeeded }) => succeeded)),
  failed: sum(rows.map(({ failed }) => failed)),
  waiting,
})

export function auditCounts(
  heads: Pick<Part<'audit'>, 'chains' | 'entries' | 'head'>,
  rows: readonly { verdict: string; chains: number; verifiedAt: string | null }[],
): Part<'audit'> {
  const times = rows.flatMap(({ verifiedAt }) => verifiedAt ?? [])
  return {
    ...heads,
    verdicts: counts(verdicts, (verdict) =>
      sum(rows.filter((row) => row.verdict === verdict).map(({ chains }) => chains)),
    ),
    verifiedAt: times.sort().at(-1) ?? null,
  }
}

/** The chain of the caller's own actions there; a partner has none. */
export function ownChain(scope: Scope): string | undefined {
  if (scope.kind === 'system') return systemChain
  return scope.kind === 'organization' ? chainOf(scope.orgId) : undefined
}

/** Why a part is left out, in words. */
export function reasonOf(
  { code, message, details }: Extract<AccessDecision, { allowed: false }>,
  scopes: readonly string[],
): string {
  if (code === 'scope_not_allowed') return `only in ${scopes.join(' or ')} scope`
  return refusalText(message ?? errors[code].title, details)
}
