import pg from 'pg'
import { Registry } from 'prom-client'
import { expect, it, onTestFinished } from 'vitest'
import { AgentAuditBuffer } from '../../daemon/agent-audit-buffer.ts'
import { AgentEventBuffer } from '../../daemon/agent-event-buffer.ts'
import { Limiter } from '../../daemon/limiter.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import type { Limits } from '../../src/core/limits.ts'
import { systemClock } from '../../src/core/time.ts'
import { copyLockKey, WriteGate } from '../../src/storage/copy/write-gate.ts'
import { lockForCopy } from '../../src/storage/sqlite/copy-lock.ts'
import { happening } from '../audit/rows.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'

onEveryDatabase((kind, open) => {
  it('tells of its closing whoever looks first', async () => {
    const database = await open()
    const heard: (string | undefined)[] = []
    const gate = new WriteGate(database, (closure) => heard.push(closure?.kind))
    onTestFinished(() => gate.close())
    const unlock = await locked(database)
    // As a write does that the database refuses.
    await gate.look()
    expect(heard).toEqual(['maintenance'])
    await gate.look()
    await unlock()
    await gate.look()
    expect(heard).toEqual(['maintenance', undefined])
  })

  it('has nothing of agents gathered once it is closed: it would be confirmed, and not go along', async () => {
    const database = await open()
    const gate = new WriteGate(database, () => {})
    onTestFinished(() => gate.close())
    const once = { count: 1, seconds: 3600 }
    const limiter = new Limiter({ AGENT_AUDIT: once, AGENT_EVENTS: once } as Limits)
    const entries = new AgentAuditBuffer(limiter, new Registry(), gate)
    const events = new AgentEventBuffer(limiter, new Registry(), gate)
    const entry = toDraftEntry(happening(null, { actorType: 'agent', actorId: 'till' }), systemClock())
    const areNow = () => [entries.isDue(entry), events.emitsNow('till', ['hostname'])]
    expect([areNow(), areNow()]).toEqual([
      [true, true],
      [false, false],
    ])
    const unlock = await locked(database)
    await gate.look()
    expect(areNow()).toEqual([true, true])
    expect([entries.size, events.size]).toEqual([1, 1])
    await unlock()
    await gate.look()
    expect(areNow()).toEqual([false, false])
  })

  async function locked({ dataDir, databaseUrl }: TestDatabase): Promise<() => Promise<void>> {
    if (kind === 'sqlite') {
      const unlock = lockForCopy(dataDir)
      return async () => unlock()
    }
    const client = new pg.Client(databaseUrl)
    await client.connect()
    await client.query('select pg_advisory_lock($1, $2)', [...copyLockKey])
    return async () => {
      await client.query('select pg_advisory_unlock($1, $2)', [...copyLockKey])
      await client.end()
    }
  }
})
