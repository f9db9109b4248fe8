import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { cursorPageOf, cursorPageQuery, pageOf, pageQuery } from '../core/page.ts'
import { idOf, idPrefix, instant, text } from '../core/schema.ts'
import { deviceStatus, osType } from '../devices/contract.ts'

export const groupType = z.enum(['static', 'dynamic'])

export const DeviceGroup = z
  .object({
    id: idOf('device_group'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable().describe('Only devices of this site can be members'),
    name: z.string(),
    type: groupType.describe('static: devices are added manually; dynamic: a saved filter selects them'),
    filterId: idOf('filter').nullable().describe('The saved filter of a dynamic group'),
    parentId: idOf('device_group').nullable(),
    deviceCount: z.int().describe('Member devices that you can see'),
    evaluatedAt: instant.nullable().describe('When the filter was last evaluated'),
    evaluationError: z
      .string()
      .nullable()
      .describe('Why that evaluation failed: the members are those from before'),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'DeviceGroup' })
export type DeviceGroup = z.output<typeof DeviceGroup>

/** A device as a member of a group. */
export const GroupMember = z
  .object({
    id: idOf('device'),
    orgId: idOf('organization'),
    siteId: idOf('site').nullable(),
    hostname: z.string(),
    displayName: z.string().nullable(),
    osType,
    status: deviceStatus,
    isPinned: z.boolean().describe('Stays a member, whether the filter matches or not'),
    addedBy: z.enum(['manual', 'dynamic_rule']),
    addedAt: instant,
  })
  .meta({ id: 'GroupMember' })
export type GroupMember = z.output<typeof GroupMember>

export const GroupChange = z
  .object({
    id: z.guid(),
    deviceId: idOf('device'),
    hostname: z.string(),
    action: z.enum(['added', 'removed']),
    reason: z.enum(['manual', 'filter_match', 'filter_unmatch', 'pinned', 'unpinned']),
    createdAt: instant,
  })
  .meta({ id: 'GroupChange' })
export type GroupChange = z.output<typeof GroupChange>

const fields = {
  name: text(255, 1).describe('Name people see'),
  filterId: idOf('filter').meta({ flag: 'filter' }).describe('Saved filter that selects the members'),
  parentId: idOf('device_group')
    .nullable()
    .meta({ flag: 'parent' })
    .describe('Group it is listed under; membership is not inherited'),
}

export const NewGroup = z.strictObject({
  orgId: idOf('organization').optional().describe('Organization it is in; inferred in organization scope'),
  siteId: idOf('site').nullable().default(null).describe('Allow only devices of this site'),
  name: fields.name,
  type: groupType.default('static').describe('dynamic groups need a filter'),
  filterId: fields.filterId.nullable().default(null),
  parentId: fields.parentId.default(null),
})
export type NewGroup = z.output<typeof NewGroup>

export const GroupUpdate = z
  .strictObject({
    name: fields.name.optional(),
    filterId: fields.filterId.optional(),
    parentId: fields.parentId.optional(),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), 'must change something')
export type GroupUpdate = z.output<typeof GroupUpdate>

const deviceIds = z
  .array(idOf('device'))
  .min(1, 'must name at least one device')
  .max(1000, 'must be at most 1000 devices')
  .meta({ flag: 'device' })

const tag = 'Device groups'
const reads = userAccess({ permission: 'devices:read', key: true })
const writes = userAccess({ permission: 'devices:write', key: true })
const params = z.strictObject({ id: idOf('device_group') })
const member = z.strictObject({ id: idOf('device_group'), deviceId: idOf('device') })
const narrowed = ['site_access_denied'] as const

export const deviceGroups = {
  list: endpoint({
    method: 'GET',
    path: '/device-groups',
    summary: 'List device groups by name',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only groups of this organization'),
      siteId: idOf('site').optional().describe('Only groups of this site'),
      type: groupType.optional(),
      parentId: idOf('device_group')
        .optional()
        .meta({ flag: 'parent' })
        .describe('Only groups under this one'),
      search: text(100).optional().describe('Part of the name'),
      idPrefix,
      ...pageQuery(),
    }),
    reply: pageOf(DeviceGroup),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/device-groups',
    idempotencyKey: 'honored',
    summary: 'Create a device group',
    tag,
    access: writes,
    readQuery: true,
    body: NewGroup,
    status: 201,
    reply: DeviceGroup,
    audit: { action: 'device_group.create', resource: 'device_group' },
    quota: 'DEVICE_GROUPS',
    errors: ['org_access_denied', 'filter_too_expensive', ...narrowed],
    example: { name: 'Reception' },
  }),
  show: endpoint({
    method: 'GET',
    path: '/device-groups/:id',
    summary: 'Show a device group',
    tag,
    access: reads,
    params,
    reply: DeviceGroup,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/device-groups/:id',
    summary: 'Change the name, filter or parent of a device group',
    tag,
    access: writes,
    readQuery: true,
    params,
    body: GroupUpdate,
    reply: DeviceGroup,
    audit: { action: 'device_group.update', resource: 'device_group' },
    errors: [...narrowed, 'conflict', 'filter_too_expensive'],
    example: { name: 'Front desk' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/device-groups/:id',
    summary: 'Delete a device group that restricts no member and has no subgroup; its devices stay',
    tag,
    access: writes,
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'device_group.delete', resource: 'device_group' },
    errors: [...narrowed, 'conflict'],
  }),
  devices: endpoint({
    method: 'GET',
    path: '/device-groups/:id/devices',
    summary: 'List the devices in a group by hostname',
    tag,
    access: reads,
    params,
    query: z.strictObject(cursorPageQuery()),
    reply: cursorPageOf(GroupMember),
  }),
  add: endpoint({
    method: 'POST',
    path: '/device-groups/:id/devices',
    idempotencyKey: 'honored',
    summary: 'Add devices to a static group',
    tag,
    access: writes,
    params,
    body: z.strictObject({ deviceIds: deviceIds.describe('Devices to add') }),
    reply: z.object({ added: z.int(), deviceCount: z.int(), message: z.string() }),
    audit: { action: 'device_group.devices.add', resource: 'device_group' },
    errors: [...narrowed, 'conflict'],
    example: {},
  }),
  take: endpoint({
    method: 'DELETE',
    path: '/device-groups/:id/devices',
    summary: 'Remove devices from a static group',
    tag,
    access: writes,
    params,
    body: z.strictObject({ deviceIds: deviceIds.describe('Devices to remove') }),
    reply: z.object({ removed: z.int(), deviceCount: z.int(), message: z.string() }),
    audit: { action: 'device_group.devices.remove', resource: 'device_group' },
    errors: [...narrowed, 'conflict'],
    example: {},
  }),
  pin: endpoint({
    method: 'POST',
    path: '/device-groups/:id/devices/:deviceId/pin',
    idempotencyKey: 'honored',
    summary: 'Pin a device to a dynamic group, whether its filter matches or not',
    tag,
    access: writes,
    params: member,
    reply: GroupMember,
    audit: { action: 'device_group.devices.pin', resource: 'device_group' },
    errors: [...narrowed, 'conflict'],
  }),
  unpin: endpoint({
    method: 'DELETE',
    path: '/device-groups/:id/devices/:deviceId/pin',
    summary: 'Unpin a device, so that the filter decides again whether it is in the group',
    tag,
    access: writes,
    params: member,
    reply: z.object({ isMember: z.boolean().describe('The filter matches it'), message: z.string() }),
    audit: { action: 'device_group.devices.unpin', resource: 'device_group' },
    errors: [...narrowed, 'conflict', 'filter_too_expensive'],
  }),
  log: endpoint({
    method: 'GET',
    path: '/device-groups/:id/membership-log',
    summary:
      'List the devices added to and removed from a group in the last 90 days, newest first: at most 10,000',
    tag,
    access: reads,
    params,
    query: z.strictObject(cursorPageQuery()),
    reply: cursorPageOf(GroupChange),
  }),
}
