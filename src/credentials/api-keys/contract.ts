import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { permissions } from '../../core/permissions.ts'
import { endInstant, idOf, instant, secret, text } from '../../core/schema.ts'

/** Scopes of a key: permission pairs, or `*` for all permissions of its creator. */
export const keyScopes: readonly string[] = [...permissions, '*']

const scope = z
  .enum(keyScopes as [string, ...string[]], {
    error: ({ input }) => {
      const known = `must be one of ${keyScopes.join(', ')}`
      return typeof input === 'string' ? `"${input.slice(0, 100)}" is not a scope: ${known}` : known
    },
  })
  .describe('A permission pair, or *')

/** Each scope once. */
const scopes = z
  .array(scope)
  .max(100, 'must have at most 100 items')
  .overwrite((all) => [...new Set(all)])
  .meta({ flag: 'scope' })

const rateLimit = z.int().min(1, 'must be at least 1').max(100_000, 'must be at most 100000')

export const status = z.enum(['active', 'revoked', 'expired'])

export const ApiKey = z
  .object({
    id: idOf('api_key'),
    orgId: idOf('organization'),
    name: z.string(),
    keyPrefix: z.string().describe('The first 12 characters of the key'),
    scopes: z.array(z.string()),
    expiresAt: instant.nullable(),
    rateLimit: z.int().describe('Requests per hour'),
    status,
    createdBy: z.guid(),
    createdAt: instant,
    lastUsedAt: instant.nullable(),
    usageCount: z.int(),
  })
  .meta({ id: 'ApiKey' })
export type ApiKey = z.output<typeof ApiKey>

export const MintedApiKey = ApiKey.omit({ lastUsedAt: true, usageCount: true })
  .extend({ key: secret(z.string()).describe('The key itself, shown this once'), warning: z.string() })
  .meta({ id: 'MintedApiKey' })

export const NewApiKey = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe('Organization the key is for; inferred in organization scope'),
  name: text(255, 1).describe('What the key is for'),
  scopes: scopes.default([]).describe('What it may do: permission pairs such as devices:read, or * for all'),
  expiresAt: endInstant.nullable().default(null).describe('When it stops working; never by default'),
  rateLimit: rateLimit.default(1000).describe('Requests per hour'),
})
export type NewApiKey = z.output<typeof NewApiKey>

export const ApiKeyChange = z
  .strictObject({
    name: text(255, 1).optional().describe('What the key is for'),
    scopes: scopes.optional().describe('What it may do from now on, in place of what it might'),
    rateLimit: rateLimit.optional().describe('Requests per hour'),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), 'must change something')
export type ApiKeyChange = z.output<typeof ApiKeyChange>

/** Longest time for which both keys of a rotation are valid: a week. */
const longestOverlap = 7 * 24 * 3600

const tag = 'API keys'
const reads = userAccess({ permission: 'organizations:read' })
const writes = userAccess({ permission: 'organizations:write', mfa: true })
const writesInFiles = userAccess({ permission: 'organizations:write', mfa: true, workload: 'files' })
const params = z.strictObject({ id: idOf('api_key') })

export const apiKeys = {
  list: endpoint({
    method: 'GET',
    path: '/api-keys',
    summary: 'List API keys, newest first',
    tag,
    access: userAccess({ permission: 'organizations:read', workload: 'files' }),
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only keys of this organization'),
      status: status.optional().describe('Only keys in this state'),
      expiresBefore: endInstant
        .optional()
        .meta({ flag: 'expiring-within', future: true })
        .describe('Only keys in use that expire until then'),
      ...pageQuery(),
    }),
    reply: pageOf(ApiKey),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/api-keys',
    idempotencyKey: 'honored',
    summary: 'Mint an API key',
    tag,
    access: writes,
    body: NewApiKey,
    status: 201,
    reply: MintedApiKey,
    audit: { action: 'api_key.create', resource: 'api_key' },
    quota: 'API_KEYS',
    errors: ['org_access_denied'],
    example: { name: 'Inventory export', scopes: ['devices:read'], rateLimit: 500 },
  }),
  show: endpoint({
    method: 'GET',
    path: '/api-keys/:id',
    summary: 'Show an API key, without the key itself',
    tag,
    access: reads,
    params,
    reply: ApiKey,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/api-keys/:id',
    summary: 'Change the name, scopes or rate limit of an API key',
    tag,
    access: writesInFiles,
    params,
    body: ApiKeyChange,
    reply: ApiKey,
    audit: { action: 'api_key.update', resource: 'api_key' },
    example: { name: 'Inventory and alerts', scopes: ['devices:read', 'alerts:read'] },
  }),
  revoke: endpoint({
    method: 'DELETE',
    path: '/api-keys/:id',
    summary: 'Revoke an API key for good',
    tag,
    access: writesInFiles,
    params,
    reply: z.object({
      success: z.literal(true),
      message: z.string(),
      apiKey: ApiKey.pick({ id: true, name: true, keyPrefix: true, status: true }),
    }),
    audit: { action: 'api_key.revoke', resource: 'api_key' },
  }),
  rotate: endpoint({
    method: 'POST',
    path: '/api-keys/:id/rotate',
    idempotencyKey: 'honored',
    summary:
      'Replace the key itself; name, scopes and rate limit stay, and the expiry unless another is given',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({
        overlapSeconds: z
          .int()
          .min(0, 'must be at least 0')
          .max(longestOverlap, `must be at most ${longestOverlap}`)
          .default(0)
          .describe('Seconds for which the old key still works; none by default'),
        expiresAt: endInstant
          .nullable()
          .optional()
          .describe('When the new key stops working; unchanged if left out'),
      })
      .prefault({}),
    reply: MintedApiKey,
    audit: { action: 'api_key.rotate', resource: 'api_key' },
    example: { overlapSeconds: 3600 },
  }),
}
