import { migrations } from '../../migrations/index.ts'
import { agentTokenHash } from '../../src/agents/tokens/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { migrate } from '../../src/storage/migrate.ts'
import { openStorage, type Storage } from '../../src/storage/open.ts'
import type { DeviceEventLogRow } from '../../src/storage/schema/tables.ts'
import type { AuditOptions } from './audit.ts'
import { removeFolder, stop, temporaryFolder } from './children.ts'
import { atLeast, median, type Row, spreadOf } from './figures.ts'
import { buildFleet } from './fleet-world.ts'
import { startLoader } from './loader.ts'
import { startService } from './servers.ts'

const perRequest = 500
const agents = 8
const group = 100

const message = 'Started Session 4242 of User root; the unit has begun execution and is now running.'
const details = { unit: 'session-4242.scope', pid: 4242, boot: 'a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4' }

const said = (n: number) => ({
  timestamp: '2026-03-01T11:00:00.000Z',
  level: 'info',
  category: 'system',
  source: `systemd-${n % 20}`,
  message: `${message} ${n}`,
  details,
})

/** Event logs of agents over HTTP, next to the same rows put into the same tables in batches by nothing else. */
export async function auditIngest({ quick }: AuditOptions, say: (line: string) => void): Promise<Row[]> {
  const load = startLoader()
  const rounds = quick ? 3 : 5
  const milliseconds = quick ? 1500 : 4000
  const dataDir = temporaryFolder('ingest')
  const bareDir = temporaryFolder('ingest-bare')
  say('audit: event logs of 8 agents')
  const devices = await withAgents(dataDir)
  const [device] = await withAgents(bareDir)
  const server = await startService('svc', { dataDir })
  const body = JSON.stringify({ events: Array.from({ length: perRequest }, (_, n) => said(n)) })
  const requests = devices.map(({ agentId, token }) => ({
    method: 'PUT',
    path: `/api/v1/agents/${agentId}/eventlogs`,
    headers: { authorization: `Bearer ${token}` },
    body,
  }))
  const order = { url: server.url, requests, status: 200, connections: agents }
  const rates: number[] = []
  const bare: number[] = []
  const storage = await openStorage({ dataDir: bareDir })
  await load({ ...order, milliseconds: Math.round(milliseconds / 3) })
  for (let round = 0; round < rounds; round++) {
    const made = await load({ ...order, milliseconds })
    rates.push((made.requests * perRequest) / made.seconds)
    bare.push(await insertBare(storage, device!, milliseconds / 2))
  }
  await storage.close()
  await stop(server.child)
  removeFolder(dataDir)
  removeFolder(bareDir)
  const ratio = spreadOf(rates.map((rate, n) => rate / bare[n]!))
  return [
    {
      bench: 'audit',
      subject: 'event logs, 500 at a time',
      against: 'batched inserts of the same rows',
      ratio,
      ...atLeast(ratio.median, 0.3),
      figures: { 'rows/s': median(rates), 'bare rows/s': median(bare) },
    },
  ]
}

type Agent = { id: string; orgId: string; agentId: string; token: string }

/** A small fleet on an empty database, with agents whose tokens are known. */
async function withAgents(dataDir: string): Promise<Agent[]> {
  const { orgId } = await buildFleet({ dataDir }, 2000, () => {})
  const storage = await openStorage({ dataDir })
  await migrate(storage, migrations)
  const known = storage.read.selectFrom('devices').select(['id', 'agent_id']).where('org_id', '=', orgId)
  const rows = await known.limit(agents).execute()
  const made = rows.map(({ id, agent_id: agentId }) => ({ id, orgId, agentId, token: `svc_${agentId}` }))
  await storage.write(async (tx) => {
    for (const { id, token } of made) {
      const hash = { token_hash: agentTokenHash(token) }
      await tx.updateTable('devices').set(hash).where('id', '=', id).execute()
    }
  })
  await storage.close()
  return made
}

async function insertBare(storage: Storage, { id, orgId }: Agent, milliseconds: number): Promise<number> {
  let seq =
    (
      await storage.read
        .selectFrom('device_event_logs')
        .select('seq')
        .orderBy('seq', 'desc')
        .limit(1)
        .execute()
    )[0]?.seq ?? 0
  let count = 0
  const begin = performance.now()
  while (performance.now() - begin < milliseconds) {
    const rows = Array.from({ length: perRequest }, (_, n): DeviceEventLogRow => {
      const { details: data, ...event } = said(n)
      seq += 1
      return {
        id: newId(),
        device_id: id,
        org_id: orgId,
        ...event,
        event_id: null,
        details: JSON.stringify(data),
        created_at: event.timestamp,
        seq,
      }
    })
    await storage.write(async (tx) => {
      for (let at = 0; at < rows.length; at += group) {
        await tx
          .insertInto('device_event_logs')
          .values(rows.slice(at, at + group))
          .execute()
      }
    })
    count += rows.length
  }
  return count / ((performance.now() - begin) / 1000)
}
