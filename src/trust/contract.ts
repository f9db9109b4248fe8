import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../core/endpoint.ts'
import { pageOf, pageQuery } from '../core/page.ts'
import { permissions as catalog } from '../core/permissions.ts'
import { idOf, instant, secret, text } from '../core/schema.ts'
import { urlFault } from '../sso/fields/contract.ts'

export const policyStatus = z.enum(['active', 'inactive'])

export const TrustPolicy = z
  .object({
    id: idOf('trust_policy'),
    orgId: idOf('organization'),
    name: z.string(),
    issuer: z.string(),
    audience: z.string(),
    claims: z.record(z.string(), z.string()),
    permissions: z.array(z.string()),
    maxUsage: z.int().describe('Largest maxUsage of an enrollment key it may mint'),
    maxTtlMinutes: z.int().describe('Longest lifetime of an enrollment key it may mint'),
    status: policyStatus,
    createdBy: z.guid(),
    createdAt: instant,
    updatedAt: instant,
    lastUsedAt: instant.nullable(),
  })
  .meta({ id: 'TrustPolicy' })
export type TrustPolicy = z.output<typeof TrustPolicy>

const issuer = text(500, 1)
  .refine((value) => urlFault(value, true) === undefined, {
    error: ({ input }) => urlFault(String(input), true),
  })
  .describe('Who signs the tokens, to the letter as their iss says it; asked at once for where its keys are')

const audience = text(500, 1)

const limits = { claims: 20, name: 100, value: 1000 }
/** Claims that have a field of their own, or differ in each token. */
const notClaims = ['iss', 'aud', 'exp', 'nbf', 'iat', 'jti']

const claims = z
  .record(text(limits.name, 1), text(limits.value, 1))
  .refine((all) => Object.keys(all).length > 0, {
    error: 'must hold at least one claim',
  })
  .refine((all) => Object.keys(all).length <= limits.claims, {
    error: `must hold at most ${limits.claims} claims`,
  })
  .refine((all) => !notClaims.some((name) => Object.hasOwn(all, name)), {
    error: `must not hold ${notClaims.join(', ')}: issuer and audience have fields of their own, the rest differs in each token`,
  })
  .refine((all) => !Object.values(all).some((value) => value.includes('*')), {
    error: 'are compared to the letter: patterns are not accepted',
  })

const permission = z.enum(catalog as [string, ...string[]], {
  error: ({ input }) => {
    const known = `must be one of ${catalog.join(', ')}`
    return typeof input === 'string' ? `"${input.slice(0, 100)}" is not a permission: ${known}` : known
  },
})

/** Each permission once. */
const permissions = z
  .array(permission)
  .min(1, 'must name at least one permission')
  .max(100, 'must have at most 100 items')
  .overwrite((all) => [...new Set(all)])
  .meta({ flag: 'permission' })

/** Enrollment keys of no workload are larger. */
export const largestKeys = { maxUsage: 100_000, maxTtlMinutes: 30 * 24 * 60 }
const maxUsage = z
  .int()
  .min(1, 'must be at least 1')
  .max(largestKeys.maxUsage, `must be at most ${largestKeys.maxUsage}`)
const maxTtlMinutes = z
  .int()
  .min(1, 'must be at least 1')
  .max(largestKeys.maxTtlMinutes, `must be at most ${largestKeys.maxTtlMinutes}`)

const descriptions = {
  name: 'What people know it as',
  audience: 'Whom the tokens are for, to the letter as their aud says it',
  claims: 'What the tokens have to say besides, each claim to the letter',
  permissions: 'What the workload may do: permission pairs such as organizations:write',
  maxUsage: 'How many devices an enrollment key may admit that it mints',
  maxTtlMinutes: 'How long an enrollment key may work that it mints',
  status: 'Whether workloads sign in by it',
}

export const NewTrustPolicy = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe('Organization it gives access to; inferred in organization scope'),
  name: text(255, 1).describe(descriptions.name),
  issuer,
  audience: audience.optional().describe(`${descriptions.audience}; the address of this service by default`),
  claims: claims.describe(descriptions.claims),
  permissions: permissions.describe(descriptions.permissions),
  maxUsage: maxUsage.default(1).describe(descriptions.maxUsage),
  maxTtlMinutes: maxTtlMinutes.default(60).describe(descriptions.maxTtlMinutes),
  status: policyStatus.default('active').describe(descriptions.status),
})
export type NewTrustPolicy = z.output<typeof NewTrustPolicy>

export const TrustPolicyChange = z.strictObject({
  name: text(255, 1).optional().describe(descriptions.name),
  issuer: issuer.optional(),
  audience: audience.optional().describe(descriptions.audience),
  claims: claims.optional().describe(`${descriptions.claims}; in place of those before`),
  permissions: permissions.optional().describe(`${descriptions.permissions}; in place of those before`),
  maxUsage: maxUsage.optional().describe(descriptions.maxUsage),
  maxTtlMinutes: maxTtlMinutes.optional().describe(descriptions.maxTtlMinutes),
  status: policyStatus.optional().describe(descriptions.status),
})
export type TrustPolicyChange = z.output<typeof TrustPolicyChange>

/** Longer than the tokens of any CI system. */
const idToken = secret(text(16_384, 1)).describe('Token that the CI system gave to the job')

const exampleToken = 'eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2dpdGxhYi5jb20ifQ.c2ln'

const tag = 'Trust'
const reads = userAccess({ permission: 'organizations:read' })
const writes = userAccess({ permission: 'organizations:write', mfa: true })
const readsInFiles = userAccess({ permission: 'organizations:read', workload: 'files' })
const writesInFiles = userAccess({ permission: 'organizations:write', mfa: true, workload: 'files' })
const params = z.strictObject({ id: idOf('trust_policy') })
const changeReply = z.object({
  data: TrustPolicy,
  warning: z.string().optional().describe('What should be looked at, such as discovery that failed'),
})
const audited = (action: string) => ({ action, resource: 'trust_policy' as const })

export const trust = {
  exchange: endpoint({
    method: 'POST',
    path: '/auth/federated',
    idempotencyKey: { refused: 'credential' },
    summary: 'Exchange the token of a CI job for a short access token, by the trust policy that it fits',
    tag,
    access: publicAccess,
    limit: 'FEDERATED',
    body: z.strictObject({
      token: idToken,
      orgId: idOf('organization').optional().describe('Only by a policy of this organization'),
      policyId: idOf('trust_policy').optional().describe('Only by this policy'),
    }),
    reply: z.object({
      accessToken: secret(z.string()).describe('Counts as one with a verified factor; it cannot be renewed'),
      expiresInSeconds: z.int(),
      permissions: z.array(z.string()),
      orgId: idOf('organization'),
      policy: TrustPolicy.pick({ id: true, name: true }),
    }),
    audit: audited('auth.federated'),
    errors: ['federated_token_refused'],
    example: { token: exampleToken },
  }),
}

export const trustPolicies = {
  list: endpoint({
    method: 'GET',
    path: '/trust/policies',
    summary: 'List trust policies, oldest first: of several that a token fits the first counts',
    tag,
    access: readsInFiles,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only policies of this organization'),
      ...pageQuery(),
    }),
    reply: pageOf(TrustPolicy),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/trust/policies',
    idempotencyKey: 'honored',
    summary: 'Create a trust policy: jobs of a CI system sign in with the tokens they have there',
    tag,
    access: writesInFiles,
    body: NewTrustPolicy,
    status: 201,
    reply: changeReply,
    audit: audited('trust.policy.create'),
    quota: 'TRUST_POLICIES',
    errors: ['org_access_denied', 'site_access_denied'],
    example: {
      name: 'Releases',
      issuer: 'https://token.actions.githubusercontent.com',
      audience: 'https://svc.example.com',
      claims: { repository_id: '74291847', environment: 'production' },
      permissions: ['organizations:read', 'organizations:write'],
      maxUsage: 5,
      maxTtlMinutes: 30,
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/trust/policies/:id',
    summary: 'Show a trust policy',
    tag,
    access: reads,
    params,
    reply: z.object({ data: TrustPolicy }),
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/trust/policies/:id',
    summary: 'Change a trust policy; access tokens that were given by it stop working at once',
    tag,
    access: writesInFiles,
    params,
    body: TrustPolicyChange,
    reply: changeReply,
    audit: audited('trust.policy.update'),
    errors: ['site_access_denied'],
    example: { claims: { repository_id: '74291847', ref: 'refs/heads/main' }, maxTtlMinutes: 15 },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/trust/policies/:id',
    summary: 'Delete a trust policy; access tokens that were given by it stop working at once',
    tag,
    access: writesInFiles,
    params,
    reply: z.object({ success: z.literal(true) }),
    audit: audited('trust.policy.delete'),
    errors: ['site_access_denied'],
  }),
  test: endpoint({
    method: 'POST',
    path: '/trust/policies/:id/test',
    idempotencyKey: { refused: 'reading' },
    summary: 'Say whether a token would be accepted by a trust policy, check by check; it is not used up',
    tag,
    access: writes,
    params,
    body: z.strictObject({ token: idToken.meta({ flag: 'id-token' }) }),
    reply: z.object({
      accepted: z.boolean(),
      checks: z.array(z.object({ check: z.string(), ok: z.boolean(), message: z.string() })),
      claims: z.record(z.string(), z.unknown()).describe('What the token says'),
    }),
    audit: audited('trust.policy.test'),
    example: { token: exampleToken },
  }),
}
