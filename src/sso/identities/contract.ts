import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { pageOf, pageQuery } from '../../core/page.ts'
import { idOf, instant } from '../../core/schema.ts'

const tag = 'SSO'
const params = z.strictObject({ id: idOf('sso_provider') })

/** Without the provider's other claims and its tokens: these are for the service only. */
export const SsoIdentity = z
  .object({
    id: idOf('sso_identity'),
    userId: idOf('user'),
    email: z.string().describe('As the provider said it at the last sign-in'),
    externalId: z.string().describe('What the provider calls them: sub, or the NameID'),
    lastLoginAt: instant,
    createdAt: instant,
  })
  .meta({ id: 'SsoIdentity' })
export type SsoIdentity = z.output<typeof SsoIdentity>

export const ssoIdentities = {
  list: endpoint({
    method: 'GET',
    path: '/sso/providers/:id/identities',
    summary: 'List who the subjects of an SSO provider are here, latest sign-in first',
    tag,
    access: userAccess({ permission: 'organizations:read', workload: 'files' }),
    params,
    query: z.strictObject(pageQuery()),
    reply: pageOf(SsoIdentity),
  }),
  unlink: endpoint({
    method: 'DELETE',
    path: '/sso/providers/:id/identities/:identityId',
    summary: 'Forget who a subject of an SSO provider is here, and end the sessions it came in by',
    tag,
    access: userAccess({ permission: 'organizations:write', mfa: true }),
    params: params.extend({ identityId: idOf('sso_identity') }),
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'sso.identity.unlink', resource: 'sso_identity' },
    errors: ['site_access_denied'],
  }),
}
