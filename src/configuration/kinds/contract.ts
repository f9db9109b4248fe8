import { z } from 'zod'
import { auditRetention, RetentionChange } from '../../audit/retention/contract.ts'
import { foldEmail } from '../../core/email.ts'
import type { Endpoint } from '../../core/endpoint.ts'
import { type PermissionPair, pairOf, permissionOf } from '../../core/permissions.ts'
import { email, type Resource, text } from '../../core/schema.ts'
import { filters } from '../../filters/contract.ts'
import { deviceGroups } from '../../groups/contract.ts'
import { invitations } from '../../identity/invitations/contract.ts'
import { roles } from '../../identity/roles/contract.ts'
import { people } from '../../identity/users/contract.ts'
import { scripts } from '../../scripts/contract.ts'
import { orgs, sites } from '../../tenancy/contract.ts'
import { trustPolicies } from '../../trust/contract.ts'
import {
  defaultRetryPolicy,
  NewRetryPolicy,
  NewWebhook,
  webhooks,
  withoutQuery,
} from '../../webhooks/contract.ts'

/** The sections of a file in the order in which they are applied: each refers to those before it and to itself. */
export const sections = [
  'organizations',
  'sites',
  'roles',
  'filters',
  'deviceGroups',
  'scripts',
  'memberships',
  'webhooks',
  'trustPolicies',
] as const
export type Section = (typeof sections)[number]

/** How a field is written in a file, where that differs from the endpoints. */
type Spelling = {
  schema: z.ZodType
  toFile(value: unknown): unknown
  toBody(value: unknown): unknown
}

/** A value with `shown` in place of each secret in it. */
export type Guard = (value: unknown, shown: (secret: string) => string) => unknown

/** A record as the endpoints return it. */
type RecordValues = Readonly<Record<string, unknown>>

/** An endpoint that changes a part of an object. */
export type Part = {
  entry: Endpoint
  /** The one field that it changes. */
  field: string
  /** The value of the field is the whole body. */
  isBody: boolean
  /** Where the endpoint finds the record, if not where the others do. */
  target?(record: RecordValues): { query: { orgId: string } }
  /** The endpoint that shows the field, where the list of its kind does not: whoever may not call it may not name the field. */
  shownBy?: Endpoint
}

/** A kind of object that files describe, by its endpoints. */
export type KindEntries = {
  resource: Resource
  list: Endpoint
  create: Endpoint
  update: Endpoint
  remove: Endpoint
  /** What ends with a record, where the entry of its deletion has no `effect`. */
  ends?: { entry: Endpoint; counts(reply: RecordValues): Record<string, number> }
  /** The field of replies that is the record; undefined: the reply is. */
  reply?: 'data'
  /** What an object is called, within its organization. */
  key: 'name' | 'slug' | 'email'
  /** Whose the objects are. `either`: of an organization, or of the partner. */
  owner: 'partner' | 'organization' | 'either'
  /** Fields whose value is merged into the stored one: keys that a file leaves out stay as they are. */
  merged: readonly string[]
  spelled: Readonly<Record<string, Spelling>>
  parts?: readonly Part[]
  /** Where its endpoints find a record; by its id, if not otherwise. */
  target?(record: RecordValues): {
    params: { id: string }
    query: { orgId?: string | undefined; partnerId?: string | undefined }
  }
  /** The body of a change that changes nothing; what it is called, if not otherwise. */
  unchanged?(record: RecordValues): Record<string, unknown>
  /** Fields for what is made, which are let be afterwards. */
  initial?: readonly string[]
  /** Fields that hold secrets which their schema does not mark. */
  guarded?: Readonly<Record<string, Guard>>
  /** Fields that an object cannot be made without in a file, and why. */
  needed?: Readonly<Record<string, string>>
  /** Fields that files do not have, and why. */
  omitted: Readonly<Record<string, string>>
}

const unknownPermission = ({ input }: { input?: unknown }) =>
  `Unknown permission: ${String(input).slice(0, 100)}`
const permissionName = text(150, 1).refine((name) => permissionOf(pairOf(name)) !== undefined, {
  error: unknownPermission,
})

/** `devices:read` in place of a resource and an action. */
const permissionNames: Spelling = {
  schema: z
    .array(permissionName)
    .max(200, 'must be at most 200 permissions')
    .overwrite((names) => [...new Set(names.map((name) => permissionOf(pairOf(name)) ?? name))].sort())
    .describe('What it grants besides what it inherits'),
  toFile: (pairs) =>
    (pairs as PermissionPair[]).map(({ resource, action }) => `${resource}:${action}`).sort(),
  toBody: (names) => (names as string[]).map(pairOf),
}

/** Written in any spelling, compared in one. */
const address: Spelling = {
  schema: email.overwrite(foldEmail).describe('Where the invitation goes'),
  toFile: (text) => foldEmail(String(text)),
  toBody: (text) => text,
}

/** In the order in which they are stored. */
const eventNames: Spelling = {
  schema: NewWebhook.shape.events.overwrite((names) => [...new Set(names)].sort()),
  toFile: (names) => (names as string[]).toSorted(),
  toBody: (names) => names,
}

/** With its defaults, which stand for what is left out. */
const wholeRetryPolicy: Spelling = {
  schema: NewRetryPolicy.overwrite((policy) => ({ ...defaultRetryPolicy, ...policy })).describe(
    'How often and when a failed delivery is retried; omitted values are the defaults',
  ),
  toFile: (policy) => policy ?? defaultRetryPolicy,
  toBody: (policy) => policy,
}

const retention: Spelling = {
  schema: RetentionChange.describe('How long its audit log is kept; what is left out stays as it is'),
  toFile: (policy) => policy,
  toBody: (policy) => policy,
}

export const entries: Readonly<Record<Section, KindEntries>> = {
  organizations: {
    resource: 'organization',
    ...{ list: orgs.page, create: orgs.create, update: orgs.update, remove: orgs.remove },
    key: 'slug',
    owner: 'partner',
    merged: ['settings', 'auditRetention'],
    spelled: { auditRetention: retention },
    parts: [
      {
        entry: auditRetention.change,
        field: 'auditRetention',
        isBody: true,
        target: ({ id }) => ({ query: { orgId: String(id) } }),
        shownBy: auditRetention.show,
      },
    ],
    omitted: { ssoConfig: 'it may hold secrets: identity providers are set up with svc sso' },
  },
  sites: {
    resource: 'site',
    ...{ list: sites.list, create: sites.create, update: sites.update, remove: sites.remove },
    key: 'name',
    owner: 'organization',
    merged: ['settings'],
    spelled: {},
    omitted: {},
  },
  roles: {
    resource: 'role',
    ...{ list: roles.list, create: roles.create, update: roles.update, remove: roles.remove },
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: { permissions: permissionNames },
    omitted: {},
  },
  filters: {
    resource: 'filter',
    ...{ list: filters.list, create: filters.create, update: filters.update, remove: filters.remove },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  deviceGroups: {
    resource: 'device_group',
    ...{ list: deviceGroups.list, create: deviceGroups.create, update: deviceGroups.update },
    remove: deviceGroups.remove,
    ends: {
      entry: deviceGroups.show,
      // A filter finds the members of a dynamic group again.
      counts: ({ type, deviceCount }) => ({ groupMembers: type === 'static' ? Number(deviceCount) : 0 }),
    },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  scripts: {
    resource: 'script',
    ...{ list: scripts.list, create: scripts.create, update: scripts.update, remove: scripts.remove },
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: {},
    omitted: { isSystem: 'the scripts of the service belong to no tenant' },
  },
  memberships: {
    resource: 'user',
    ...{ list: people.list, create: invitations.invite, update: people.changeAccess, remove: people.remove },
    key: 'email',
    owner: 'either',
    merged: [],
    spelled: { email: address },
    parts: [{ entry: people.assignRole, field: 'roleId', isBody: false }],
    // A person may be a member of several tenants.
    target: ({ userId, orgId, partnerId }) => ({
      params: { id: String(userId) },
      query: orgId === null ? { partnerId: String(partnerId) } : { orgId: String(orgId) },
    }),
    unchanged: ({ orgId, orgAccess, siteIds }) => (orgId === null ? { orgAccess } : { siteIds }),
    // What people are called is theirs, once they have accepted.
    initial: ['name'],
    omitted: {},
  },
  webhooks: {
    resource: 'webhook',
    ...{ list: webhooks.list, create: webhooks.create, update: webhooks.update, remove: webhooks.remove },
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: { events: eventNames, retryPolicy: wholeRetryPolicy },
    parts: [{ entry: webhooks.setRetryPolicy, field: 'retryPolicy', isBody: true }],
    guarded: {
      url: (value, shown) => (typeof value === 'string' ? withoutQuery(value, shown) : value),
    },
    // Otherwise one would be generated, and displayed to nobody.
    needed: { secret: `is required for a new one: \${env:NAME}, or null so that nothing is signed` },
    omitted: {},
  },
  trustPolicies: {
    resource: 'trust_policy',
    ...{ list: trustPolicies.list, create: trustPolicies.create, update: trustPolicies.update },
    remove: trustPolicies.remove,
    reply: 'data',
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
}
