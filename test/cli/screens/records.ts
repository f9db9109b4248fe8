import type { ReceivedDelivery } from '../../../src/cli/webhooks/delivery.ts'
import { type Answer, me, organization, page, uuid } from '../fake-service.ts'
import { overview } from '../overview-record.ts'
import { progress, rollout } from '../rollout-record.ts'

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour

/** Wide and combining characters, an emoji of several code points, and names that are written from right to left. */
const hostnames = [
  'reception-1',
  'kasse-zürich-filiale-bahnhofstrasse-2',
  '東京サーバー',
  'cafe\u0301-till',
  '👩‍💻 laptop',
  'שלום-מחשב',
  'مكتب-الاستقبال',
  'build \u001b[31mserver\u202e',
]

/** Longer than a terminal is wide. */
export const longMessage = `The download of version 2.1.0 goes on after ${'a long wait and '.repeat(8)}a retry`

/** Records of a service at a moment, which are of the same ages at every moment. */
export function answersAt(now: number): Record<string, Answer> {
  const at = (ago: number) => new Date(now - ago).toISOString()
  const created = { createdAt: at(400 * day), updatedAt: at(3 * day) }
  /** The beginning of an id is its time: these are unique in some digits more than eight. */
  const id = (n: number) => `01a20c0e-${String(n * 37).padStart(4, '0')}-7abc-8def-0123456789ab`

  const statuses = [
    'online',
    'offline',
    'maintenance',
    'updating',
    'quarantined',
    'pending',
    'online',
    'online',
  ]
  // In the middle of what an age says: a moment later it is the same.
  const seen = [
    3.5 * minute,
    3.5 * day,
    45.5 * minute,
    90 * minute,
    40.5 * day,
    null,
    12.5 * minute,
    800 * day,
  ]
  const devices = hostnames.map((hostname, n) => ({
    id: id(n),
    orgId: uuid(10),
    siteId: uuid(20),
    hostname,
    displayName: n === 0 ? 'Front desk' : null,
    status: statuses[n],
    osType: n === 1 ? 'windows' : 'linux',
    osVersion: n === 1 ? 'Windows 11 Pro for Workstations 24H2' : 'Debian 13',
    tags: n === 0 ? ['front', 'pos'] : [],
    lastSeenAt: seen[n] === null ? null : at(seen[n]!),
  }))
  const orgs = [
    organization(10, 'blue-bakery', 'Blue Bakery', created),
    organization(11, 'acme', 'A very long name that does not fit beside the rest', { status: 'suspended' }),
  ]
  const users = [
    ['ada@example.com', 'Ada Lovelace', 'active', 'Org Admin', true, at(2 * hour)],
    ['mary.margaret.somerville@mathematics.example.com', '山田 花子', 'invited', 'Technician', false, null],
  ].map(([email, name, status, roleName, mfaEnabled, lastLoginAt], n) => ({
    id: id(n),
    email,
    name,
    status,
    roleName,
    mfaEnabled,
    lastLoginAt,
  }))
  const entries = ['success', 'denied', 'failure'].map((result, n) => ({
    id: id(n),
    timestamp: at(n * 25 * minute + 5000),
    user: { email: 'ada@example.com' },
    action: ['device.update', 'enrollment_key.create', 'auth.login'][n],
    resource: { type: ['device', 'enrollment_key', 'user'][n], name: [hostnames[1], 'Front desk', null][n] },
    result,
    orgId: null,
    seq: 3 - n,
  }))
  const logs = hostnames.slice(0, 3).map((hostname, n) => ({
    hostname,
    log: {
      id: id(n),
      deviceId: id(n),
      orgId: uuid(10),
      timestamp: at(n * minute),
      createdAt: at(n * minute),
      level: ['warn', 'debug', 'error'][n],
      seq: 7 - n,
    },
  }))
  const keys = ['active', 'revoked'].map((status, n) => ({
    id: id(n),
    name: `Export ${n}`,
    keyPrefix: `svc_${n}ab12`,
    scopes: ['devices:read', 'alerts:read'],
    status,
    usageCount: n * 1000,
    lastUsedAt: at(n * day),
    orgId: uuid(10),
  }))
  const detail = {
    ...devices[0],
    ...created,
    customFields: { rack: 'B 7' },
    note: 'A long remark about this machine, which takes more than one line of a terminal to read, and is broken between words.',
    hardware: {
      manufacturer: 'Example',
      cpuModel: 'Example 9',
      cpuCores: 8,
      ramTotalMb: 16_384,
      gpuModel: null,
    },
    network: [
      { interfaceName: 'eth0', macAddress: '02:00:00:00:00:01', ipAddress: '192.0.2.7', isPrimary: true },
      { interfaceName: 'wlan0', macAddress: '02:00:00:00:00:02', ipAddress: null, isPrimary: false },
    ],
    disks: [{ mountPoint: '/', device: '/dev/sda1', fsType: 'ext4', totalGb: 250, usedGb: 61 }],
    metrics: { cpuPercent: 12.5, ramPercent: 40, timestamp: at(20_000) },
  }
  const alerts = ['critical', 'high', 'low'].map((severity, n) => ({
    id: id(n),
    orgId: uuid(10),
    deviceId: n === 1 ? null : id(n),
    ruleId: null,
    severity,
    status: ['active', 'acknowledged', 'resolved'][n],
    title: ['Backup failed on kasse-zürich', 'Certificate expires', '東京サーバー: disk is almost full'][n],
    triggeredAt: at(n * hour + 90_000),
  }))
  const webhooks = ['active', 'paused', 'failed'].map((status, n) => ({
    id: id(n),
    orgId: uuid(10),
    status,
    hasSecret: true,
    name: ['Ticket system', 'Chat', 'Warehouse'][n],
    url: `https://hooks.example.com/${'devices/'.repeat(n * 3 + 1)}`,
    events: [['alert.triggered', 'device.updated'], ['*'], ['device.decommissioned']][n],
    lastSuccessAt: n === 2 ? null : at(n * day + 2.5 * minute),
  }))
  return {
    'GET /alerts': page(alerts),
    'GET /webhooks': page(webhooks),
    'GET /overview': { body: overview },
    'GET /agent-rollouts': page([rollout]),
    [`GET /agent-rollouts/${rollout.id}`]: { body: progress },
    'GET /auth/caller': { body: { kind: 'user' } },
    'GET /auth/me': {
      body: { ...me, memberships: [], mfaVerified: true, mfaVerifiedAt: at(3 * hour) },
    },
    'GET /devices': page(devices),
    [`GET /devices/${id(0)}`]: { body: detail },
    'GET /orgs/': { body: { data: orgs } },
    [`GET /orgs/organizations/${uuid(10)}`]: { body: orgs[0] },
    'GET /users': page(users),
    'GET /audit-logs/logs': page(entries, { total: 1200 }),
    'GET /audit-logs/chains': {
      body: {
        data: [{ orgId: null, name: 'System', slug: null, deletedAt: null, seq: 3, checksum: 'aa' }],
      },
    },
    'GET /api-keys': page(keys),
    'GET /logs/heads': {
      body: {
        data: logs.map(({ hostname, log: { deviceId, seq } }) => ({ deviceId, hostname, seq })),
        pagination: { limit: 1000, nextCursor: null },
      },
    },
    'GET /logs/tail': {
      body: {
        diagnostic: logs.slice(0, 2).map(({ log }, n) => ({
          ...log,
          component: ['heartbeat', 'update'][n],
          fields: null,
          agentVersion: '1.0.0',
          message: ['The service did not answer', longMessage][n],
        })),
        events: logs.slice(2).map(({ log }) => ({
          ...log,
          category: 'hardware',
          source: 'kernel',
          eventId: null,
          details: null,
          message: 'nvme0: I/O error',
        })),
        places: [],
      },
    },
  }
}

/** The id of the first device. */
export const firstDevice = '01a20c0e-0000-7abc-8def-0123456789ab'

/** Deliveries as they come in: sent on, sent in vain a second time, and refused. */
export function deliveriesAt(now: number): ReceivedDelivery[] {
  const delivery = (n: number, more: Partial<ReceivedDelivery>): ReceivedDelivery => ({
    receivedAt: new Date(now + n * 1234).toISOString(),
    eventId: uuid(100 + n),
    deliveryId: uuid(200 + n),
    sequence: n,
    type: 'alert.triggered',
    orgId: uuid(10),
    signature: 'valid',
    reason: null,
    again: false,
    forwarded: null,
    event: {},
    ...more,
  })
  return [
    delivery(0, { forwarded: { status: 200, milliseconds: 12 } }),
    delivery(1, {
      type: 'remote.file.transferred',
      again: true,
      forwarded: { error: 'http://127.0.0.1:8080 did not answer within 25 s' },
    }),
    delivery(2, {
      type: 'some.type.of.a.later.version.with.a.long.name',
      signature: 'invalid',
      reason: 'the time of the signature is 4000 s in the past, more than the tolerance of 300 s',
    }),
    delivery(3, { signature: 'unchecked' }),
  ]
}
