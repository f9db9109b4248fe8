import { auditRetention } from '../../audit/retention/contract.ts'
import type { Endpoint } from '../../core/endpoint.ts'
import { leadsElsewhere } from '../../core/outbound.ts'
import type { Resource } from '../../core/schema.ts'
import { apiKeys } from '../../credentials/api-keys/contract.ts'
import { enrollmentKeys } from '../../credentials/enrollment-keys/contract.ts'
import { filters } from '../../filters/contract.ts'
import { deviceGroups } from '../../groups/contract.ts'
import { invitations } from '../../identity/invitations/contract.ts'
import { roles } from '../../identity/roles/contract.ts'
import { people } from '../../identity/users/contract.ts'
import { scripts } from '../../scripts/contract.ts'
import { ssoProviders } from '../../sso/contract.ts'
import { orgs, partners, sites } from '../../tenancy/contract.ts'
import { trustPolicies } from '../../trust/contract.ts'
import { defaultRetryPolicy, redactQuery, webhooks } from '../../webhooks/contract.ts'
import {
  address,
  eventNames,
  keyScopes,
  partnerSettings,
  permissionNames,
  providerFields,
  retention,
  type Spelling,
  wholeRetryPolicy,
} from '../spellings/contract.ts'

/** The sections of a file in the order in which they are applied: each refers to those before it and to itself. */
export const sections = [
  'partners',
  'organizations',
  'sites',
  'roles',
  'filters',
  'deviceGroups',
  'scripts',
  'memberships',
  'webhooks',
  'trustPolicies',
  'ssoProviders',
  'apiKeys',
  'enrollmentKeys',
] as const
export type Section = (typeof sections)[number]

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
  /** Whether it is set before everything else of an object, and not after it. */
  isFirst?(value: unknown): boolean
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
  /** Why files make none: they take over what there is. */
  whyNotCreated?: string
  update: Endpoint
  /** undefined: files delete none, and what they do not have any more belongs to no set. */
  remove?: Endpoint
  /** Those of a caller who belongs to no tenant, where they are others. */
  ofSystem?: { list: Endpoint; update: Endpoint }
  /** Files of one organization have none. */
  wholePartner?: boolean
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
  /** The values with which an object is made again, where no endpoint makes it with those that it had. */
  valuesToRecreate?(values: RecordValues): Record<string, unknown>
  /** Why an object that was deleted is not made again; undefined: it is. */
  whyNotRecreated?(record: RecordValues): string | undefined
  /** The body of a change that changes nothing; its name, if not otherwise. */
  unchanged?(record: RecordValues): Record<string, unknown>
  /** Names of fields in a file, where they are not made from those of the endpoints. */
  fileNames?: Readonly<Record<string, string>>
  /** A field may decide others, as a preset does: a change says all that a file names, and what else has changed is a part of it. */
  decides?: boolean
  /** What the values that a change asks for decide, in the form of a file, where a plan does not try it; undefined: it has none. */
  decided?(asked: Readonly<Record<string, unknown>>): Record<string, unknown>
  /** Its update knows who may change it before it finds fault with what is stored, such as a secret that no key opens. */
  checksAccessFirst?: boolean
  /** Fields whose change the audit log records under another name. */
  recorded?: Readonly<Record<string, string>>
  /** Fields for what is made, which are let be afterwards. */
  initial?: readonly string[]
  /** What is made has these values of fields that only a change sets. */
  initialValues?: Readonly<Record<string, unknown>>
  /** Fields that hold secrets which their schema does not mark. */
  guarded?: Readonly<Record<string, Guard>>
  /**
   * A field with secrets for the place that another one names: who changes the place says them again, and who says them names
   * the place. `none`: its value without secrets.
   */
  bound?: { field: string; to: string; none: unknown; isElsewhere(value: string, before: string): boolean }
  /** Fields that an object cannot be made without in a file, and why. */
  needed?: Readonly<Record<string, string>>
  /** What stands for a guarded field that a plan goes without, in its own transaction and nowhere else. */
  placeholders?: Readonly<Record<string, unknown>>
  /** Fields that files do not have, and parts of them, and why. */
  omitted: Readonly<Record<string, string>>
}

const shownOnce = 'a key is shown once, to whoever makes it:'

const byOperator = 'it is for whoever operates the service: svc partners update'

export const entries: Readonly<Record<Section, KindEntries>> = {
  partners: {
    resource: 'partner',
    list: partners.me,
    create: partners.create,
    whyNotCreated: 'files change the settings of the partner that they are applied to',
    update: partners.changeMe,
    ofSystem: { list: partners.show, update: partners.update },
    wholePartner: true,
    key: 'slug',
    owner: 'partner',
    merged: ['settings'],
    spelled: { settings: partnerSettings },
    unchanged: ({ name }) => ({ name }),
    omitted: {
      type: byOperator,
      plan: byOperator,
      maxOrganizations: byOperator,
      maxDevices: byOperator,
      status: byOperator,
      ssoConfig: byOperator,
      'settings.organizationOrder': 'it is arranged by hand, in ids: svc orgs order',
    },
  },
  organizations: {
    resource: 'organization',
    list: orgs.page,
    create: orgs.create,
    update: orgs.update,
    remove: orgs.remove,
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
    initialValues: { billingContact: null },
    omitted: { ssoConfig: 'it may hold secrets: identity providers are set up with svc sso' },
  },
  sites: {
    resource: 'site',
    list: sites.list,
    create: sites.create,
    update: sites.update,
    remove: sites.remove,
    key: 'name',
    owner: 'organization',
    merged: ['settings'],
    spelled: {},
    omitted: {},
  },
  roles: {
    resource: 'role',
    list: roles.list,
    create: roles.create,
    update: roles.update,
    remove: roles.remove,
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: { permissions: permissionNames },
    omitted: {},
  },
  filters: {
    resource: 'filter',
    list: filters.list,
    create: filters.create,
    update: filters.update,
    remove: filters.remove,
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  deviceGroups: {
    resource: 'device_group',
    list: deviceGroups.list,
    create: deviceGroups.create,
    update: deviceGroups.update,
    remove: deviceGroups.remove,
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  scripts: {
    resource: 'script',
    list: scripts.list,
    create: scripts.create,
    update: scripts.update,
    remove: scripts.remove,
    key: 'name',
    owner: 'either',
    merged: [],
    spelled: {},
    recorded: { content: 'contentSha256' },
    omitted: { isSystem: 'the scripts of the service belong to no tenant' },
  },
  memberships: {
    resource: 'user',
    list: people.list,
    create: invitations.invite,
    update: people.changeAccess,
    remove: people.remove,
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
    // Nobody is invited to selected organizations without one of them.
    valuesToRecreate: ({ orgs, ...values }) =>
      Array.isArray(orgs) && orgs.length === 0
        ? { ...values, orgAccess: 'none' }
        : { ...values, ...(orgs !== undefined && { orgs }) },
    // An invitation that its holder accepts would give back what an administrator has taken.
    whyNotRecreated: ({ status }) => (status === 'disabled' ? 'it was disabled' : undefined),
    // What people are called is theirs, once they have accepted.
    initial: ['name'],
    // Which organizations somebody sees ends with access to selected ones.
    decides: true,
    decided: ({ orgAccess = 'selected' }) => (orgAccess === 'selected' ? {} : { orgs: undefined }),
    omitted: {},
  },
  webhooks: {
    resource: 'webhook',
    list: webhooks.list,
    create: webhooks.create,
    update: webhooks.update,
    remove: webhooks.remove,
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: { events: eventNames, retryPolicy: wholeRetryPolicy },
    parts: [{ entry: webhooks.setRetryPolicy, field: 'retryPolicy', isBody: true }],
    guarded: {
      url: (value, shown) => (typeof value === 'string' ? redactQuery(value, shown) : value),
    },
    bound: { field: 'headers', to: 'url', none: [], isElsewhere: leadsElsewhere },
    initialValues: { status: 'active', retryPolicy: defaultRetryPolicy },
    // Otherwise one would be generated, and displayed to nobody.
    needed: { secret: `is required for a new one: \${env:NAME}, or null so that nothing is signed` },
    placeholders: {
      secret: 'left out',
      url: 'https://left-out.example.com',
      headers: [{ key: 'X-Left-Out', value: 'left out' }],
    },
    omitted: {},
  },
  trustPolicies: {
    resource: 'trust_policy',
    list: trustPolicies.list,
    create: trustPolicies.create,
    update: trustPolicies.update,
    remove: trustPolicies.remove,
    reply: 'data',
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: {},
  },
  ssoProviders: {
    resource: 'sso_provider',
    list: ssoProviders.list,
    create: ssoProviders.create,
    update: ssoProviders.update,
    remove: ssoProviders.remove,
    reply: 'data',
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: providerFields,
    parts: [
      {
        entry: ssoProviders.setStatus,
        field: 'status',
        isBody: false,
        // An active one has to be complete: it is completed first, and taken apart last.
        isFirst: (status) => status !== 'active',
      },
    ],
    initialValues: { status: 'inactive' },
    fileNames: { defaultRoleId: 'defaultRole' },
    decides: true,
    checksAccessFirst: true,
    bound: { field: 'clientSecret', to: 'tokenUrl', none: null, isElsewhere: leadsElsewhere },
    placeholders: { clientSecret: 'left out' },
    omitted: { force: 'who enforces single sign-on untried does so with svc sso update --force' },
  },
  apiKeys: {
    resource: 'api_key',
    list: apiKeys.list,
    create: apiKeys.create,
    update: apiKeys.update,
    remove: apiKeys.revoke,
    whyNotCreated: `${shownOnce} svc keys create, and --adopt`,
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: { scopes: keyScopes },
    omitted: {},
  },
  enrollmentKeys: {
    resource: 'enrollment_key',
    list: enrollmentKeys.list,
    create: enrollmentKeys.create,
    update: enrollmentKeys.update,
    remove: enrollmentKeys.remove,
    whyNotCreated: `${shownOnce} svc enroll create, and --adopt`,
    key: 'name',
    owner: 'organization',
    merged: [],
    spelled: {},
    omitted: { siteId: 'it is said when the key is made, and never changes' },
  },
}
