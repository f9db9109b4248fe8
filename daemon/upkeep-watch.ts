import { Gauge, Registry } from 'prom-client'
import type { Storage } from '../src/storage/open.ts'
import { serverStateOf } from '../src/storage/server-state.ts'
import { upkeepOf } from '../src/storage/upkeep/upkeep.ts'
import type { StoredMetrics } from './metrics.ts'

/** The statistics that it is read from change slowly. */
const keepMs = 60_000

/** What the database has left undone; `svc doctor` names each, and what mends it. */
export function watchUpkeep(storage: Storage): StoredMetrics {
  const registry = new Registry()
  const undone = new Gauge({
    name: 'svc_database_upkeep',
    help: 'What slows the database down, at most five of each kind, which svc doctor names.',
    labelNames: ['kind'],
    registers: [registry],
  })
  const idle = new Gauge({
    name: 'svc_database_idle_transactions',
    help: 'Connections that have been idle in a transaction for five minutes or longer, of at most ten.',
    registers: [registry],
  })
  const age = new Gauge({
    name: 'svc_database_transaction_age',
    help: 'Transactions of Postgres since the oldest row that is not frozen; 0 on SQLite.',
    registers: [registry],
  })
  const slots = new Gauge({
    name: 'svc_database_slot_bytes',
    help: 'Bytes of the write-ahead log of Postgres that the replication slot farthest behind keeps.',
    registers: [registry],
  })
  const refresh = async () => {
    const upkeep = await upkeepOf(storage)
    idle.set((await serverStateOf(storage)).idleTransactions.length)
    for (const [kind, count] of Object.entries(upkeep.undone)) undone.set({ kind }, count)
    age.set(upkeep.transactionAge)
    slots.set(upkeep.slotBytes)
  }
  return { registry, refresh, keepMs }
}
