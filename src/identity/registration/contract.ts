import { z } from 'zod'
import { endpoint, publicAccess } from '../../core/endpoint.ts'
import { email, secret, text } from '../../core/schema.ts'
import { NewPassword } from '../passwords/contract.ts'

const tag = 'Authentication'

const person = {
  email,
  password: NewPassword,
  name: text(255, 1).describe('Of the person'),
}

const Done = z.object({ success: z.literal(true), message: z.string() })

export const registration = {
  register: endpoint({
    method: 'POST',
    path: '/auth/register',
    idempotencyKey: 'honored',
    summary: 'Make an account that can then be invited; the answer is the same for every address',
    tag,
    access: publicAccess,
    body: z.strictObject(person),
    reply: Done,
    audit: { action: 'user.register', resource: 'user' },
    limit: 'REGISTER',
    example: { email: 'ada@example.com', password: 'correct horse battery staple', name: 'Ada' },
  }),
  registerPartner: endpoint({
    method: 'POST',
    path: '/auth/register-partner',
    idempotencyKey: 'honored',
    summary: 'Register a partner with its first administrator, organization and site',
    tag,
    access: publicAccess,
    body: z.strictObject({
      companyName: text(255, 2),
      ...person,
      acceptTerms: z
        .boolean()
        .refine((accepted) => accepted, 'must be true')
        .optional(),
    }),
    reply: Done,
    audit: { action: 'partner.register', resource: 'partner' },
    quota: 'PENDING_PARTNERS',
    limit: 'REGISTER_PARTNER',
    example: {
      companyName: 'Example Managed Services',
      email: 'ada@example.com',
      password: 'correct horse battery staple',
      name: 'Ada',
    },
  }),
  verifyEmail: endpoint({
    method: 'POST',
    path: '/auth/verify-email',
    idempotencyKey: { refused: 'once' },
    summary: 'Prove the address of a registration with the token that was sent there',
    tag,
    access: publicAccess,
    body: z.strictObject({ token: secret(text(128, 1)) }),
    reply: Done,
    audit: { action: 'user.email.verify', resource: 'user' },
    quota: 'PENDING_PARTNERS',
    limit: 'VERIFY_EMAIL',
    errors: ['invalid_verification_link'],
    example: { token: 'from-the-link' },
  }),
}
