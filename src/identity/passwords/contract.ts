import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { secret, text } from '../../core/schema.ts'

const tag = 'Authentication'

/** Length and strength are checked together elsewhere, so that one reply says everything to change. */
export const NewPassword = secret(text(1024, 1)).describe('8 to 128 characters, not easily guessed')

const Done = z.object({ success: z.literal(true), message: z.string() })

export const passwords = {
  forgotPassword: endpoint({
    method: 'POST',
    path: '/auth/forgot-password',
    idempotencyKey: 'honored',
    summary: 'Ask for a link to set a new password; the answer is the same for every address',
    tag,
    access: publicAccess,
    body: z.strictObject({ email: text(255, 1) }),
    reply: Done,
    audit: { unaudited: 'the work begins after the answer; the link that is sent leaves an entry' },
    limit: 'FORGOT',
    example: { email: 'ada@example.com' },
  }),
  resetPassword: endpoint({
    method: 'POST',
    path: '/auth/reset-password',
    idempotencyKey: { refused: 'once' },
    summary: 'Set a new password with the token of a link; ends every session',
    tag,
    access: publicAccess,
    body: z.strictObject({ token: secret(text(128, 1)), password: NewPassword }),
    reply: Done,
    session: 'ends',
    audit: { action: 'user.password.reset', resource: 'user' },
    errors: ['invalid_reset_token'],
    example: { token: 'from-the-link', password: 'correct horse battery staple' },
  }),
  changePassword: endpoint({
    method: 'POST',
    path: '/auth/change-password',
    idempotencyKey: { refused: 'once' },
    summary: 'Set a new password; ends every session, this one included',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z.strictObject({ currentPassword: secret(text(1024, 1)), newPassword: NewPassword }),
    reply: Done,
    session: 'ends',
    audit: { action: 'user.password.change', resource: 'user' },
    errors: ['wrong_password'],
    example: { currentPassword: 'the one until now', newPassword: 'correct horse battery staple' },
  }),
}
