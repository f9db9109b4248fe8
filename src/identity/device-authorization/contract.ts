import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { instant, secret, text } from '../../core/schema.ts'
import { SignIn } from '../sessions/contract.ts'

/*
 * The device authorization grant (RFC 8628): a terminal without a browser shows a code, and a person approves it in a
 * browser on another machine. "Device" is the terminal here, not a machine that is managed.
 */

const tag = 'Authentication'

const deviceCode = secret(text(128, 1)).describe('From the start; known to the terminal alone')
const userCode = secret(text(32, 1)).describe('As the terminal shows it, such as WDJB-MJHT')

export const deviceAuthorization = {
  startDeviceAuthorization: endpoint({
    method: 'POST',
    path: '/auth/device',
    idempotencyKey: { refused: 'credential' },
    summary: 'Begin a sign-in that a person approves in a browser elsewhere',
    tag,
    access: publicAccess,
    body: z
      .strictObject({
        client: text(200, 1)
          .optional()
          .describe('What signs in, as shown to the person: program and machine'),
      })
      .prefault({}),
    reply: z.object({
      deviceCode: secret(z.string()).describe('For /auth/device/token'),
      userCode: secret(z.string()).describe('To be entered at verificationUrl'),
      verificationUrl: z.string(),
      expiresInSeconds: z.int(),
      intervalSeconds: z.int().describe('Time to wait between two requests to /auth/device/token'),
    }),
    audit: { unaudited: 'nobody has signed in yet' },
    limit: 'DEVICE_START',
    example: { client: 'svc on web-1' },
  }),
  previewDeviceAuthorization: endpoint({
    method: 'POST',
    path: '/auth/device/preview',
    idempotencyKey: { refused: 'reading' },
    summary: 'Show what a code would sign in',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z.strictObject({ userCode }),
    reply: z.object({
      client: z.string().describe('What it says of itself, which nobody has checked'),
      ip: z.string().describe('Address that it was requested from'),
      createdAt: instant,
      expiresAt: instant,
    }),
    audit: { unaudited: 'changes nothing' },
    errors: ['invalid_user_code'],
    example: { userCode: 'WDJB-MJHT' },
  }),
  decideDeviceAuthorization: endpoint({
    method: 'POST',
    path: '/auth/device/decision',
    idempotencyKey: { refused: 'once' },
    summary:
      'Deny the sign-in of a code, or approve it with the membership of this session, within 10 minutes of its begin',
    tag,
    access: userAccess({ whileEnrolling: true }),
    body: z.strictObject({ userCode, decision: z.enum(['approve', 'deny']) }),
    reply: z.object({ success: z.literal(true) }),
    audit: { action: 'auth.device.approve', resource: 'user' },
    errors: ['invalid_user_code', 'reauthentication_required'],
    example: { userCode: 'WDJB-MJHT', decision: 'approve' },
  }),
  pollDeviceAuthorization: endpoint({
    method: 'POST',
    path: '/auth/device/token',
    idempotencyKey: { refused: 'credential' },
    summary: 'Exchange the device code for tokens, once the sign-in is approved',
    tag,
    access: publicAccess,
    body: z.strictObject({ deviceCode }),
    reply: SignIn,
    session: 'starts',
    audit: { action: 'user.login', resource: 'user' },
    emits: ['user.login'],
    errors: ['authorization_pending', 'access_denied', 'invalid_device_code'],
    example: { deviceCode: 'from-the-start' },
  }),
}
