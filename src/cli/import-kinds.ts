import type { Endpoint } from '../core/endpoint.ts'
import { withoutUndefined } from '../core/json.ts'
import type { Resource } from '../core/schema.ts'
import { users } from '../identity/contract.ts'
import { orgs, sites } from '../tenancy/contract.ts'
import type { CommandContext } from './base.ts'
import { fetchAllRows } from './pages.ts'
import { slugify } from './tabular.ts'

type JsonObject = Record<string, unknown>

/** Ids of existing records, by `keyOf`. */
export type Known = Map<string, string>

/** What can be imported from a file. */
export type ImportKind = {
  what: string
  create: Endpoint
  /** Columns with names of other records, and the fields of the body for their ids; the organization comes first. */
  references: readonly { column: string; field: string; resource: Resource; many?: true }[]
  /** Adds what a row leaves out. */
  complete(record: JsonObject, defaults: JsonObject): JsonObject
  /** What no two records share; the last field names a row. */
  key: readonly [...within: string[], name: string]
  known(session: CommandContext, bodies: readonly JsonObject[]): Promise<Known>
  /** Code of the refusal of one that exists. */
  taken?: string
  /** What is left to do about a record that was made. */
  leftToDo?: (made: JsonObject) => string | undefined
}

export const keyOf = ({ key }: Pick<ImportKind, 'key'>, body: JsonObject): string =>
  key.map((field) => String(body[field]).toLowerCase()).join(' ')

export const organizationImport: ImportKind = {
  what: 'organizations',
  create: orgs.create,
  references: [{ column: 'partner', field: 'partnerId', resource: 'partner' }],
  complete(record, { partner }) {
    const slug = record.slug ?? slugify(String(record.name ?? ''))
    return {
      ...withoutUndefined({ partner: record.partnerId === undefined ? partner : undefined }),
      ...record,
      slug,
    }
  },
  key: ['partnerId', 'slug'],
  async known({ client }) {
    const rows: { id: string; partnerId: string; slug: string }[] = []
    for await (const row of fetchAllRows(client, orgs.list)) rows.push(row as (typeof rows)[number])
    const known: Known = new Map(rows.map((org) => [keyOf(organizationImport, org), org.id]))
    if (new Set(rows.map(({ partnerId }) => partnerId)).size > 1) return known
    for (const { id, slug } of rows) known.set(keyOf(organizationImport, { slug }), id)
    return known
  },
  taken: 'slug_taken',
}

export const siteImport: ImportKind = {
  what: 'sites',
  create: sites.create,
  references: [{ column: 'org', field: 'orgId', resource: 'organization' }],
  complete: (record, { org }) => ({
    ...withoutUndefined({ org: record.orgId === undefined ? org : undefined }),
    ...record,
  }),
  key: ['orgId', 'name'],
  async known({ client }, bodies) {
    const known: Known = new Map()
    for (const orgId of new Set(bodies.map((body) => String(body.orgId)))) {
      for await (const row of fetchAllRows(client, sites.list, { orgId }))
        known.set(keyOf(siteImport, row as JsonObject), (row as { id: string }).id)
    }
    return known
  },
}

export const userImport: ImportKind = {
  what: 'users',
  create: users.invite,
  references: [
    { column: 'org', field: 'orgId', resource: 'organization' },
    { column: 'partner', field: 'partnerId', resource: 'partner' },
    { column: 'role', field: 'roleId', resource: 'role' },
    { column: 'selectedOrgs', field: 'orgIds', resource: 'organization', many: true },
    { column: 'sites', field: 'siteIds', resource: 'site', many: true },
    { column: 'groups', field: 'deviceGroupIds', resource: 'device_group', many: true },
  ],
  complete(record, { role, partner, org }) {
    const isPlaced = ['org', 'orgId', 'partner', 'partnerId'].some((column) => record[column] !== undefined)
    const place = isPlaced ? {} : partner === undefined ? { org } : { partner }
    return {
      ...withoutUndefined({ ...place, role: record.roleId === undefined ? role : undefined }),
      ...record,
    }
  },
  key: ['orgId', 'partnerId', 'email'],
  async known({ client }, bodies) {
    const known: Known = new Map()
    const tenants = bodies.map(({ orgId, partnerId }) => withoutUndefined({ orgId, partnerId }))
    for (const tenant of new Set(tenants.map((one) => JSON.stringify(one)))) {
      const query = JSON.parse(tenant) as JsonObject
      for await (const row of fetchAllRows(client, users.list, query)) {
        const { id, email } = row as { id: string; email: string }
        known.set(keyOf(userImport, { ...query, email }), id)
      }
    }
    return known
  },
  taken: 'user_exists',
  leftToDo({ inviteEmailSent, inviteUrl }) {
    if (inviteEmailSent !== false) return undefined
    return inviteUrl === undefined
      ? 'There is no mail server: svc dev outbox shows the mail of who has an account'
      : 'There is no mail server: svc users resend E-MAIL prints the link of each, to hand over'
  },
}
