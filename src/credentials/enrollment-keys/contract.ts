import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { flag, pageOf, pageQuery } from '../../core/page.ts'
import { endInstant, idOf, instant, secret, text } from '../../core/schema.ts'

const maxUsage = z.int().min(1, 'must be at least 1').max(100_000, 'must be at most 100000')

export const EnrollmentKey = z
  .object({
    id: idOf('enrollment_key'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable(),
    name: z.string(),
    usageCount: z.int(),
    maxUsage: z.int().nullable(),
    expiresAt: instant,
    createdBy: z.guid(),
    createdAt: instant,
    lastUsedAt: instant.nullable(),
    lastDeviceId: z.guid().nullable(),
  })
  .meta({ id: 'EnrollmentKey' })
export type EnrollmentKey = z.output<typeof EnrollmentKey>

export const MintedEnrollmentKey = EnrollmentKey.extend({
  key: secret(z.string()).describe('The key itself, shown this once'),
}).meta({ id: 'MintedEnrollmentKey' })

/** The enrollment fields of a device. */
export const EnrolledDevice = z
  .object({
    id: idOf('device'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable(),
    hostname: z.string(),
    osType: z.string(),
    status: z.string(),
    enrolledAt: instant,
    enrollmentIp: z.string().nullable(),
  })
  .meta({ id: 'EnrolledDevice' })
export type EnrolledDevice = z.output<typeof EnrolledDevice>

export const NewEnrollmentKey = z.strictObject({
  orgId: idOf('organization')
    .optional()
    .describe('Organization to enroll into; inferred in organization scope'),
  siteId: idOf('site').optional().describe('Site the devices are placed in'),
  name: text(255, 1).describe('What the key is for'),
  maxUsage: maxUsage.default(1).describe('How many devices may enroll with it'),
  expiresAt: endInstant.optional().describe('When it stops working; an hour from now by default'),
})
export type NewEnrollmentKey = z.output<typeof NewEnrollmentKey>

export const EnrollmentKeyChange = z
  .strictObject({
    name: text(255, 1).optional().describe('What the key is for'),
    maxUsage: maxUsage
      .nullable()
      .optional()
      .describe('How many devices may enroll with it; null lifts the limit'),
    expiresAt: endInstant.optional().describe('When it stops working'),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), 'must change something')
export type EnrollmentKeyChange = z.output<typeof EnrollmentKeyChange>

const tag = 'Enrollment keys'
const reads = userAccess({ permission: 'organizations:read', workload: true })
const writes = userAccess({ permission: 'organizations:write', mfa: true, workload: true })
const params = z.strictObject({ id: idOf('enrollment_key') })

export const enrollmentKeys = {
  list: endpoint({
    method: 'GET',
    path: '/enrollment-keys',
    summary: 'List enrollment keys',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only keys of this organization'),
      expired: flag.optional().describe('Only keys that have expired, or only those that have not'),
      expiresBefore: endInstant
        .optional()
        .meta({ flag: 'expiring-within', future: true })
        .describe('Only keys in use that expire until then'),
      ...pageQuery(),
    }),
    reply: pageOf(EnrollmentKey),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/enrollment-keys',
    idempotencyKey: 'honored',
    summary: 'Mint an enrollment key',
    tag,
    access: writes,
    body: NewEnrollmentKey,
    status: 201,
    reply: MintedEnrollmentKey,
    audit: { action: 'enrollment_key.create', resource: 'enrollment_key' },
    quota: 'ENROLLMENT_KEYS',
    errors: ['org_access_denied', 'key_shape_exceeded'],
    example: { name: 'Reception laptops', maxUsage: 5 },
  }),
  show: endpoint({
    method: 'GET',
    path: '/enrollment-keys/:id',
    summary: 'Show an enrollment key, without the key itself',
    tag,
    access: reads,
    params,
    reply: EnrollmentKey,
  }),
  devices: endpoint({
    method: 'GET',
    path: '/enrollment-keys/:id/devices',
    summary: 'List the machines that enrolled with a key, newest first',
    tag,
    access: userAccess({ permission: 'organizations:read' }),
    params,
    query: z.strictObject(pageQuery()),
    reply: pageOf(EnrolledDevice),
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/enrollment-keys/:id',
    summary: 'Change the name, limit or expiry of an enrollment key',
    tag,
    access: writes,
    params,
    body: EnrollmentKeyChange,
    reply: EnrollmentKey,
    audit: { action: 'enrollment_key.update', resource: 'enrollment_key' },
    errors: ['key_shape_exceeded', 'site_access_denied'],
    example: { name: 'Front desk laptops', maxUsage: 10 },
  }),
  rotate: endpoint({
    method: 'POST',
    path: '/enrollment-keys/:id/rotate',
    idempotencyKey: 'honored',
    summary: 'Replace the key itself and start counting from 0',
    tag,
    access: writes,
    params,
    body: z
      .strictObject({
        maxUsage: maxUsage.nullable().optional().describe('null lifts the limit; unchanged if left out'),
        expiresAt: endInstant.optional().describe('Unchanged if left out'),
      })
      .prefault({}),
    reply: MintedEnrollmentKey,
    audit: { action: 'enrollment_key.rotate', resource: 'enrollment_key' },
    errors: ['key_shape_exceeded'],
    example: { maxUsage: 10 },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/enrollment-keys/:id',
    summary: 'Delete an enrollment key for good',
    tag,
    access: writes,
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'enrollment_key.delete', resource: 'enrollment_key' },
  }),
}
