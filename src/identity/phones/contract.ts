import { z } from 'zod'
import { endpoint, publicAccess } from '../../core/endpoint.ts'
import { secret, text } from '../../core/schema.ts'
import {
  code,
  currentPassword,
  done,
  newTokens,
  ownAccountAccess,
  recoveryCodes,
} from '../factors/contract.ts'

const tag = 'Authentication'

const phoneNumber = text(16, 1)
  .regex(/^\+[1-9]\d{6,14}$/, 'must be a phone number such as +4915112345678')
  .describe('E.164')

export const phones = {
  verifyPhone: endpoint({
    method: 'POST',
    path: '/auth/phone/verify',
    idempotencyKey: 'honored',
    summary: 'Send a code to a phone number',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ phoneNumber, currentPassword }),
    reply: z.object(done),
    audit: { action: 'auth.phone.verify.requested', resource: 'user' },
    errors: ['sms_not_configured', 'sms_unavailable', 'wrong_password'],
    example: { phoneNumber: '+4915112345678' },
  }),
  confirmPhone: endpoint({
    method: 'POST',
    path: '/auth/phone/confirm',
    idempotencyKey: { refused: 'once' },
    summary: 'Prove the phone number with the code that was sent',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ phoneNumber, code, currentPassword }),
    reply: z.object(done),
    audit: { action: 'auth.phone.verify.confirmed', resource: 'user' },
    errors: ['invalid_verification_code', 'sms_not_configured', 'sms_unavailable', 'wrong_password'],
    example: { phoneNumber: '+4915112345678', code: '123456' },
  }),
  enableSms: endpoint({
    method: 'POST',
    path: '/auth/mfa/sms/enable',
    idempotencyKey: { refused: 'credential' },
    summary: 'Use the proven phone number as second factor; other sessions end',
    tag,
    access: ownAccountAccess,
    body: z.strictObject({ currentPassword }).prefault({}),
    reply: z.object({ ...done, recoveryCodes, tokens: newTokens }),
    session: 'starts',
    audit: { action: 'auth.mfa.enable', resource: 'user' },
    errors: ['conflict', 'sms_not_allowed', 'wrong_password'],
    example: {},
  }),
  sendSms: endpoint({
    method: 'POST',
    path: '/auth/mfa/sms/send',
    idempotencyKey: 'honored',
    summary: 'Send the code for a sign-in by SMS',
    tag,
    access: publicAccess,
    body: z.strictObject({ tempToken: secret(text(128, 1)) }),
    reply: z.object(done),
    audit: { action: 'auth.mfa.sms.sent', resource: 'user' },
    errors: ['invalid_mfa_session', 'sms_not_configured', 'sms_unavailable'],
    example: { tempToken: 'from-the-login-answer' },
  }),
}
