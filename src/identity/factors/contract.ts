import { z } from 'zod'
import { endpoint, publicly, user } from '../../core/endpoint.ts'
import { secret, text } from '../../core/schema.ts'
import { SignIn, Tokens } from '../sessions/contract.ts'

const tag = 'Authentication'

const code = secret(text(20, 1)).describe('Six digits from the authenticator, or a recovery code')

export const factors = {
  setupMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/setup',
    summary: 'Begin to enrol an authenticator app',
    tag,
    access: user({ whileEnrolling: true }),
    reply: z.object({
      secret: secret(z.string()).describe('Base32, to type by hand'),
      otpAuthUrl: secret(z.string()),
      qrCodeDataUrl: secret(z.string()),
      recoveryCodes: secret(z.array(z.string())).describe('Shown once; each signs in once'),
    }),
    audit: { action: 'auth.mfa.setup', resource: 'user' },
    errors: ['conflict'],
  }),
  enableMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/enable',
    summary: 'Confirm the authenticator with a first code; other sessions end',
    tag,
    access: user({ whileEnrolling: true }),
    body: z.strictObject({ code }),
    reply: z.object({
      success: z.literal(true),
      message: z.string(),
      tokens: Tokens.describe('This session, now with a verified factor'),
    }),
    session: 'starts',
    audit: { action: 'auth.mfa.enable', resource: 'user' },
    errors: ['invalid_mfa_code'],
    example: { code: '123456' },
  }),
  verifyMfa: endpoint({
    method: 'POST',
    path: '/auth/mfa/verify',
    summary: 'Finish a sign-in with a code',
    tag,
    access: publicly,
    body: z.strictObject({ tempToken: secret(text(128, 1)), code }),
    reply: SignIn,
    session: 'starts',
    audit: { action: 'user.login', resource: 'user' },
    errors: ['invalid_mfa_code', 'invalid_mfa_session'],
    example: { tempToken: 'from-the-login-answer', code: '123456' },
  }),
}
