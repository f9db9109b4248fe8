import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { idOf, instant, secret, text } from '../../core/schema.ts'

const tag = 'Authentication'

export const Tokens = z
  .object({
    accessToken: secret(z.string()).describe('Bearer token'),
    refreshToken: secret(z.string()).optional().describe('Only for clients that send X-Service-Client: cli'),
    expiresInSeconds: z.int(),
  })
  .meta({ id: 'Tokens' })

const Identity = z
  .object({
    id: idOf('user'),
    email: z.string(),
    name: z.string(),
    avatarUrl: z.string().nullable(),
    status: z.enum(['active', 'invited', 'disabled']),
    mfaEnabled: z.boolean(),
    mfaMethod: z.enum(['totp', 'sms']).nullable(),
    phoneVerified: z.boolean(),
    phoneLast4: z.string().nullable(),
    lastLoginAt: instant.nullable(),
    createdAt: instant,
  })
  .meta({ id: 'Identity' })

export const SignIn = z
  .object({
    user: Identity.nullable(),
    tokens: Tokens.nullable(),
    mfaRequired: z.boolean().describe('True when a code has to be sent to /auth/mfa/verify with tempToken'),
    tempToken: secret(z.string()).optional(),
    mfaMethod: z.enum(['totp', 'sms']).optional(),
    mfaEnrollmentRequired: z.boolean().optional(),
    enrollUrl: z.string().optional(),
  })
  .meta({ id: 'SignIn' })
export type SignIn = z.output<typeof SignIn>

const Caller = z
  .object({
    kind: z.enum(['user', 'api_key', 'workload']),
    id: z.guid().describe('Of the user, the API key or the trust policy'),
    name: z.string(),
    email: z.string().nullable().describe('Of a user'),
    run: z.string().nullable().describe('Of a workload: its run in the CI system'),
    scope: z.enum(['system', 'partner', 'organization']),
    partnerId: idOf('partner').nullable(),
    orgId: idOf('organization').nullable(),
    permissions: z.array(z.string()).describe('What it may do now'),
  })
  .meta({ id: 'Caller' })

export const sessions = {
  login: endpoint({
    method: 'POST',
    path: '/auth/login',
    idempotencyKey: { refused: 'credential' },
    summary: 'Sign in with e-mail and password',
    tag,
    access: publicAccess,
    body: z.strictObject({
      email: text(255, 1),
      password: secret(text(1024, 1)),
      orgId: idOf('organization').optional().describe('Membership to sign in with'),
      partnerId: idOf('partner').optional().describe('Membership to sign in with'),
      refreshToken: secret(text(1024, 1))
        .optional()
        .describe(
          'Of a session of this account, else taken from the cookie: the proof that is asked for while many ' +
            'passwords are tried',
        ),
    }),
    reply: SignIn,
    session: 'starts',
    audit: { action: 'user.login', resource: 'user' },
    emits: ['user.login'],
    limit: 'LOGIN_IP',
    errors: ['invalid_credentials'],
    example: { email: 'admin@example.com', password: 'correct horse battery staple' },
  }),
  logout: endpoint({
    method: 'POST',
    path: '/auth/logout',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Sign out: ends the sessions of the caller, or this one alone, with their tokens',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z
      .strictObject({
        everywhere: z.boolean().default(true).describe('Every session of the account; false ends this one'),
      })
      .prefault({}),
    reply: z.object({ success: z.literal(true) }),
    session: 'ends',
    audit: { action: 'user.logout', resource: 'user' },
    emits: ['user.logout'],
    example: { everywhere: false },
  }),
  refresh: endpoint({
    method: 'POST',
    path: '/auth/refresh',
    idempotencyKey: { refused: 'credential' },
    summary: 'Exchange the refresh token for a new pair',
    tag,
    access: publicAccess,
    body: z
      .strictObject({ refreshToken: secret(text(1024, 1)).optional().describe('Else taken from the cookie') })
      .prefault({}),
    reply: z.object({ tokens: Tokens }),
    session: 'renews',
    audit: { unaudited: 'keeps a session going; re-use of a spent token is audited on its own' },
    errors: ['invalid_refresh_token', 'refresh_raced', 'csrf'],
    example: { refreshToken: 'from-the-last-sign-in' },
  }),
  me: endpoint({
    method: 'GET',
    path: '/auth/me',
    summary: 'Show who is signed in, with which scope and permissions',
    tag,
    access: userAccess({ whileEnrolling: true }),
    reply: z.object({
      user: Identity,
      scope: z.enum(['system', 'partner', 'organization']),
      partnerId: idOf('partner').nullable(),
      orgId: idOf('organization').nullable(),
      role: z.object({ id: z.guid(), name: z.string() }).nullable(),
      permissions: z.array(z.string()),
      memberships: z.array(
        z.object({
          scope: z.enum(['partner', 'organization']),
          id: z.guid(),
          name: z.string(),
          slug: z.string(),
          role: z.string(),
        }),
      ),
      mfaVerified: z.boolean().describe('Whether this session carries a verified factor'),
      mfaVerifiedAt: instant.nullable().describe('When that factor was verified'),
    }),
  }),
  caller: endpoint({
    method: 'GET',
    path: '/auth/caller',
    summary: 'Show whose credential this is: of a user, an API key or a workload, and what it may do',
    tag,
    access: userAccess({ whileEnrolling: true, key: true, workload: true }),
    reply: Caller,
  }),
  switch: endpoint({
    method: 'POST',
    path: '/auth/switch',
    idempotencyKey: { refused: 'credential' },
    summary: 'Go on in another membership; without one, in the one a sign-in would choose',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z
      .strictObject({
        orgId: idOf('organization').optional().describe('Membership to go on with'),
        partnerId: idOf('partner').optional().describe('Membership to go on with'),
      })
      .prefault({}),
    reply: SignIn,
    session: 'starts',
    audit: { action: 'auth.switch', resource: 'user' },
    errors: ['forbidden'],
    example: {},
  }),
}
