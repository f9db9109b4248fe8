import { recordAudit } from '../audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../audit/rules.ts'
import { Problem } from '../core/errors.ts'
import type { Instant } from '../core/time.ts'
import { emitStatusChanges, emitUpdated } from '../devices/events.ts'
import { deviceRows } from '../devices/rows.ts'
import type { AgentCaller } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import type { AgentDeviceRow } from '../storage/schema/tables.ts'
import { claimCommands } from './commands/store.ts'
import type { Heartbeat, HeartbeatReply } from './contract.ts'
import {
  type ColumnChanges,
  configUpdateFor,
  heartbeatChanges,
  isEmpty,
  isSilent,
  isSuspended,
  isTokenOld,
  rememberAddress,
  watchdogChanges,
} from './rules.ts'
import * as store from './store.ts'
import { findOffer, hasNoOffer, type Offer } from './upgrades/offer.ts'
import { type UpdateChange, updateOnReport } from './upgrades/rules.ts'
import type { TrustKey } from './versions/manifest.ts'

/** Settings for replies to heartbeats. */
export type HeartbeatSettings = {
  trustKeys: readonly TrustKey[]
  /** AGENT_TOKEN_ROTATION_MAX_AGE_DAYS */
  agentTokenDays: number
  /**
   * Whether changes of a device are emitted immediately; otherwise they are emitted later, with the values they have
   * then.
   */
  emitsNow(deviceId: string, columns: readonly string[]): boolean
}

/** The origin of a heartbeat. */
export type RequestOrigin = { ip: string; userAgent: string | null; now: Instant }

/**
 * Saves what an agent reports about itself, or its watchdog about it; returns the reply. Without changes that is one
 * update of its row. @throws re_enrollment_required for a role that the token does not have
 */
export async function heartbeat(
  db: Db,
  caller: AgentCaller,
  body: Heartbeat,
  origin: RequestOrigin,
  settings: HeartbeatSettings,
): Promise<HeartbeatReply> {
  const { role } = caller
  const { emitsNow } = settings
  if (body.role !== undefined && body.role !== role) throw new Problem('re_enrollment_required')
  const update = role === 'agent' ? updateOnReport(caller.device, body.agentVersion, origin.now) : undefined
  const device = update ? { ...caller.device, ...update.columns } : caller.device
  if (role === 'watchdog') await applyWatchdogHeartbeat(db, device, body, origin, emitsNow)
  else await applyAgentHeartbeat(db, caller.device, body, update, origin, emitsNow)
  const commands = await commandsFor(db, caller, origin.now)
  const offer = await findOffer(db, caller, device, body, origin.now)
  return replyTo({ ...caller, device }, body, { commands, offer }, settings, origin.now)
}

function replyTo(
  { role, standing, device }: AgentCaller,
  body: Heartbeat,
  { commands = [], offer }: { commands?: HeartbeatReply['commands']; offer?: Offer | null },
  { trustKeys, agentTokenDays }: HeartbeatSettings,
  now: Instant,
): HeartbeatReply {
  const isAgent = role === 'agent'
  return {
    commands,
    configUpdate: isAgent ? configUpdateFor(device, body) : null,
    upgradeTo: offer?.version ?? null,
    ...(offer?.isRollback && { rollback: true as const }),
    rotateToken: isAgent && standing === 'current' && isTokenOld(device, agentTokenDays, now),
    ...(standing === 'pending' && { confirmTokenRotation: true }),
    manifestTrustKeys: [...trustKeys],
  }
}

/**
 * The reply to a heartbeat that contains nothing but liveness and metrics, when the reply has no instructions, and
 * the row to save; undefined for every other heartbeat. Nearly all heartbeats are of this kind.
 */
export function unchangedHeartbeat(
  caller: AgentCaller,
  body: Heartbeat,
  { ip, now }: RequestOrigin,
  settings: HeartbeatSettings,
): { reply: HeartbeatReply; row: store.UnchangedRow } | undefined {
  const { role, standing, device } = caller
  if (role !== 'agent' || standing !== 'current' || (body.role ?? role) !== role) return undefined
  if (!body.metrics || device.last_seen_ip !== ip || isSilent(device.status)) return undefined
  if (device.has_commands !== null || !isEmpty(heartbeatChanges(body, device))) return undefined
  if (updateOnReport(device, body.agentVersion, now) || !hasNoOffer(device, body, now)) return undefined
  const { id, status } = device
  const row = {
    ...store.metricsColumns(body.metrics),
    id,
    status,
    seen_at: now,
    uptime: uptimeOf(body, device),
  }
  return { reply: replyTo(caller, body, {}, settings, now), row }
}

async function applyAgentHeartbeat(
  db: Db,
  device: AgentDeviceRow,
  body: Heartbeat,
  update: UpdateChange | undefined,
  origin: RequestOrigin,
  emitsNow: HeartbeatSettings['emitsNow'],
): Promise<void> {
  const said = {
    changed: heartbeatChanges(body, device),
    metrics: body.metrics,
    uptime: uptimeOf(body, device),
  }
  await recordAlive(db, device, { ...said, ...(update && { update }) }, origin, emitsNow)
}

const uptimeOf = ({ uptime }: Heartbeat, { uptime_seconds }: AgentDeviceRow): number | null =>
  uptime === undefined ? uptime_seconds : Math.round(uptime)

/** A sign of life without other content. */
export const recordSeen = (db: Db, device: AgentDeviceRow, origin: RequestOrigin): Promise<void> =>
  recordAlive(
    db,
    device,
    { uptime: device.uptime_seconds, changed: {}, metrics: undefined },
    origin,
    () => true,
  )

type AgentReport = {
  uptime: number | null
  changed: ColumnChanges
  metrics: Heartbeat['metrics']
  /** The effect of the reported version on the update in progress. */
  update?: UpdateChange
}

async function recordAlive(
  db: Db,
  device: AgentDeviceRow,
  said: AgentReport,
  origin: RequestOrigin,
  emitsNow: HeartbeatSettings['emitsNow'],
): Promise<void> {
  const { now, ip } = origin
  if (device.last_seen_ip !== ip) await auditNewAddress(db, device, origin)
  // Of two concurrent heartbeats after a silence the second one finds the device online already.
  const status = isSilent(device.status) ? await store.lockStatus(db, device.id) : device.status
  await store.recordHeartbeat(db, { id: device.id, uptime: said.uptime }, said, { now, ip })
  await emitBackOnline(db, { ...device, ...said.changed, status }, now)
  const isDone = said.update?.isOver === true && device.status === 'updating'
  await emitChanges(db, device, { ...said.changed, ...(isDone && { status: 'online' }) }, now, emitsNow)
}

/** A watchdog's report changes nothing about the machine's liveness: only the agent's own heartbeats do. */
async function applyWatchdogHeartbeat(
  db: Db,
  device: AgentDeviceRow,
  body: Heartbeat,
  { now }: RequestOrigin,
  emitsNow: HeartbeatSettings['emitsNow'],
): Promise<void> {
  const changed = watchdogChanges(body, device)
  await store.recordWatchdog(db, device.id, changed, now)
  await emitChanges(db, device, changed, now, emitsNow)
}

/** Agents of a suspended tenant report, but receive no commands. */
export async function commandsFor(
  db: Db,
  { device, deviceId, role }: Pick<AgentCaller, 'device' | 'deviceId' | 'role'>,
  now: Instant,
): Promise<HeartbeatReply['commands']> {
  if (device.has_commands === null || isSuspended(device)) return []
  return claimCommands(db, { deviceId, role, now })
}

/** A report from a new address may come from another machine that has the token. */
async function auditNewAddress(
  db: Db,
  device: AgentDeviceRow,
  { ip, userAgent, now }: RequestOrigin,
): Promise<void> {
  const known = await store.lockAddresses(db, device.id)
  const previousIp = known?.last_seen_ip ?? null
  if (!known || previousIp === null || previousIp === ip) return
  const addresses = rememberAddress(known.told_addresses, ip, now)
  if (addresses === undefined) return
  await store.saveAddresses(db, device.id, addresses)
  const changed: AuditEvent = {
    orgId: device.org_id,
    actorType: 'agent',
    actorId: device.id,
    actorEmail: null,
    action: 'agent.source.ip.changed',
    resourceType: 'device',
    resourceId: device.id,
    resourceName: device.hostname,
    details: { previousIp, newIp: ip },
    ipAddress: ip,
    userAgent,
    result: 'success',
  }
  await recordAudit(db, toDraftEntry(changed, now))
}

/** Emits device.online for a device that was silent. */
async function emitBackOnline(
  db: Db,
  { id, org_id, hostname, agent_version, status }: AgentDeviceRow,
  now: Instant,
): Promise<void> {
  if (!isSilent(status)) return
  const back = { display_name: null, last_seen_at: now, status: 'online' }
  await emitStatusChanges(db, [{ id, org_id, hostname, agent_version, ...back }], now)
}

/** Emits the reported changes, except the signed-in user, who changes too often. */
async function emitChanges(
  db: Db,
  device: AgentDeviceRow,
  changed: ColumnChanges,
  now: Instant,
  emitsNow: HeartbeatSettings['emitsNow'],
): Promise<void> {
  const { hostname_key: _, last_user: __, auto_update_acknowledged: ___, ...columns } = changed
  const names = Object.keys(columns)
  if (names.length === 0 || !emitsNow(device.id, names)) return
  const { id, org_id: orgId, hostname } = { ...device, ...columns }
  await emitUpdated(db, { id, orgId, hostname }, deviceRows.read(columns), now)
}

/** Emits columns of a device that changed since the last event, with their present values. */
export async function emitDeferred(
  db: Db,
  deviceId: string,
  columns: ReadonlySet<string>,
  now: Instant,
): Promise<void> {
  const row = await db.selectFrom('devices').selectAll().where('id', '=', deviceId).executeTakeFirst()
  if (!row) return
  const { id, org_id: orgId, hostname } = row
  const said = Object.fromEntries(Object.entries(row).filter(([name]) => columns.has(name)))
  await emitUpdated(db, { id, orgId, hostname }, deviceRows.read(said as typeof row), now)
}
