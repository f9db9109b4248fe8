import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { email, idOf, instant, secret, text } from '../../core/schema.ts'
import { SignIn } from '../sessions/contract.ts'
import { deviceGroupIds, orgAccess, orgIds, siteIds, tenant } from '../users/contract.ts'

const tag = 'Users'

export const NewInvitation = z.strictObject({
  email: email.describe('Where the invitation goes'),
  name: text(255, 1).describe('Name people see'),
  roleId: idOf('role').describe('Role in the tenant'),
  orgId: tenant.orgId.describe('Invite into this organization'),
  partnerId: tenant.partnerId.describe('Invite into this partner; for system scope'),
  orgAccess: orgAccess.optional().describe('Into a partner: organizations in reach; none by default'),
  orgIds: orgIds.optional().describe('Which organizations, with orgAccess selected'),
  siteIds: siteIds.optional().describe('Into an organization: only these sites'),
  deviceGroupIds: deviceGroupIds.optional().describe('Into an organization: only these device groups'),
})
export type NewInvitation = z.output<typeof NewInvitation>

const sent = {
  inviteEmailSent: z.boolean().describe('Whether a mail is on its way'),
  inviteUrl: secret(z.string()).optional().describe('The link, while no mail server is configured'),
}

const token = secret(text(128, 1)).describe('From the link of the invitation')

export const invitations = {
  invite: endpoint({
    method: 'POST',
    path: '/users/invite',
    idempotencyKey: 'honored',
    summary: 'Invite a person by e-mail; an existing account is added',
    tag,
    access: userAccess({ permission: 'users:invite', wholePartner: true, workload: 'files' }),
    body: NewInvitation,
    status: 201,
    reply: z.object({
      id: idOf('user'),
      email: z.string(),
      name: z.string(),
      status: z.enum(['active', 'invited', 'disabled']),
      roleId: idOf('role'),
      ...sent,
    }),
    audit: { action: 'user.invite', resource: 'user' },
    quota: 'MEMBERS',
    errors: ['user_exists', 'tenant_required', 'org_access_denied', 'partner_mismatch'],
    example: { email: 'ada@example.com', name: 'Ada Lovelace' },
  }),
  resendInvite: endpoint({
    method: 'POST',
    path: '/users/resend-invite',
    idempotencyKey: 'honored',
    summary: 'Send an invitation again; the link sent before stops working',
    tag,
    access: userAccess({ permission: 'users:invite', wholePartner: true }),
    body: z.strictObject({ userId: idOf('user').describe('Who was invited'), ...tenant }),
    reply: z.object({ success: z.literal(true), ...sent }),
    audit: { action: 'user.invite.resend', resource: 'user' },
    example: {},
  }),
}

/** An invitation that its recipient has not accepted. */
const PendingInvitation = z
  .object({
    partnerId: idOf('partner').nullable(),
    orgId: idOf('organization').nullable(),
    name: z.string().describe('Of the partner or organization'),
    roleName: z.string(),
    invitedAt: instant,
  })
  .meta({ id: 'PendingInvitation' })

export const myInvitations = {
  myInvitations: endpoint({
    method: 'GET',
    path: '/users/me/invitations',
    summary: 'List the invitations that wait for you to accept them',
    tag,
    access: userAccess({ whileEnrolling: true }),
    reply: z.object({ data: z.array(PendingInvitation) }),
  }),
  acceptMine: endpoint({
    method: 'POST',
    path: '/users/me/invitations',
    summary: 'Accept an invitation of a partner or organization, with the account you are signed in to',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z.strictObject({
      orgId: idOf('organization').optional().describe('Organization that invited you'),
      partnerId: idOf('partner').optional().describe('Partner that invited you'),
    }),
    idempotencyKey: { refused: 'once' },
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'user.invite.accepted', resource: 'user' },
    errors: ['invite_not_found', 'mfa_required', 'email_unproved'],
    example: {},
  }),
}

export const acceptance = {
  previewInvite: endpoint({
    method: 'POST',
    path: '/auth/invite/preview',
    idempotencyKey: { refused: 'reading' },
    summary: 'Show what an invitation is to',
    tag: 'Authentication',
    access: publicAccess,
    body: z.strictObject({ token }),
    reply: z.object({
      email: z.string(),
      name: z.string(),
      partnerName: z.string().optional(),
      orgName: z.string().optional(),
      expiresAt: instant,
    }),
    audit: { unaudited: 'changes nothing' },
    limit: 'INVITE_PREVIEW',
    errors: ['invite_not_found', 'invite_accepted'],
    example: { token: 'from-the-link' },
  }),
  acceptInvite: endpoint({
    method: 'POST',
    path: '/auth/accept-invite',
    idempotencyKey: { refused: 'credential' },
    summary: 'Accept an invitation: sets the first password and signs in',
    tag: 'Authentication',
    access: publicAccess,
    body: z.strictObject({
      token,
      password: secret(text(1024, 1)).describe('8 to 128 characters, not easily guessed'),
    }),
    reply: SignIn.extend({ message: z.string().optional() }),
    session: 'starts',
    audit: { action: 'user.invite.accepted', resource: 'user' },
    limit: 'INVITE_ACCEPT',
    example: { token: 'from-the-link', password: 'correct horse battery staple' },
  }),
}
