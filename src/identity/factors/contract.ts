import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { secret, text } from '../../core/schema.ts'
import { SignIn, Tokens } from '../sessions/contract.ts'

const tag = 'Authentication'
export const ownAccountAccess = userAccess({ whileEnrolling: true })

export const code = secret(text(20, 1)).describe('Six digits, or a recovery code')
/** Reauthentication; not needed within ten minutes of a sign-in or a code. */
export const currentPassword = secret(text(1024, 1))
  .optional()
  .describe('Needed when the sign-in is more than 10 minutes ago')

export const recoveryCodes = secret(z.array(z.string())).describe('Shown once; each signs in once')
export const done = { success: z.literal(true), message: z.string() }
export const newTokens = Tokens.describe('This session goes on with these; every other one ended')

export const factors = {
  setupMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/setup',
    idempotencyKey: { refused: 'credential' },
    summary: 'Begin to enroll an authenticator app',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ currentPassword }).prefault({}),
    reply: z.object({
      secret: secret(z.string()).describe('Base32, to type by hand'),
      otpAuthUrl: secret(z.string()),
      qrCodeDataUrl: secret(z.string()),
      recoveryCodes,
    }),
    audit: { action: 'auth.mfa.setup', resource: 'user' },
    errors: ['conflict', 'wrong_password'],
    example: {},
  }),
  enableMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/enable',
    idempotencyKey: { refused: 'credential' },
    summary: 'Confirm the authenticator with a first code; other sessions end',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ code, currentPassword }),
    reply: z.object({ ...done, recoveryCodes, tokens: newTokens }),
    session: 'starts',
    audit: { action: 'auth.mfa.enable', resource: 'user' },
    errors: ['invalid_mfa_code', 'wrong_password'],
    example: { code: '123456' },
  }),
  verifyMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/verify',
    idempotencyKey: { refused: 'credential' },
    summary: 'Finish a sign-in with a code; when signed in already, confirm a set-up or prove a factor',
    tag,
    access: { ...publicAccess, session: true },
    body: z.strictObject({ tempToken: secret(text(128, 1)).optional(), code }),
    reply: SignIn.extend({
      success: z.literal(true).optional(),
      message: z.string().optional(),
      recoveryCodes: recoveryCodes.optional(),
    }),
    session: 'starts',
    audit: { action: 'user.login', resource: 'user' },
    emits: ['user.login'],
    errors: ['invalid_mfa_code', 'invalid_mfa_session', 'unauthenticated'],
    example: { tempToken: 'from-the-login-answer', code: '123456' },
  }),
  disableMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/disable',
    idempotencyKey: { refused: 'credential' },
    summary: 'Remove the second factor, its phone number and recovery codes; other sessions end',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ code, currentPassword }),
    reply: z.object({ ...done, tokens: newTokens }),
    session: 'starts',
    audit: { action: 'auth.mfa.disable', resource: 'user' },
    errors: ['invalid_mfa_code', 'mfa_enforced', 'wrong_password'],
    example: { code: '123456' },
  }),
  newRecoveryCodes: endpoint({
    method: 'POST',
    path: '/auth/mfa/recovery-codes',
    idempotencyKey: { refused: 'credential' },
    summary: 'Replace all recovery codes',
    tag,
    access: userAccess({ whileEnrolling: true, mfa: true }),
    body: z.strictObject({ currentPassword }).prefault({}),
    reply: z.object({ ...done, recoveryCodes }),
    audit: { action: 'auth.mfa.recovery_codes.rotate', resource: 'user' },
    errors: ['wrong_password'],
    example: {},
  }),
}
