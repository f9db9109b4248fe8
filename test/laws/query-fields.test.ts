import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { z } from 'zod'
import { api } from '../../src/api.ts'
import { systemClock } from '../../src/core/time.ts'
import { currentFairShareKey } from '../../src/storage/fair-queue.ts'
import { SqliteConnection } from '../../src/storage/sqlite/connection.ts'
import { ReaderPool } from '../../src/storage/sqlite/reader-pool.ts'
import { openMigrated } from '../databases.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { toWire, valuesFor } from './calls.ts'
import { called, optional } from './fields.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { Line } from './wire.ts'

/*
 * A field of a query is a parameter of the API and a flag of the command. One that no code reads is accepted, and changes
 * nothing: whoever asks for some records gets all of them. So a call with the field has another reply than one without it, or
 * asks the database with its value.
 */

/** Whether the database is asked with the value itself, and not with another question. */
const isText = (value: string) => !/^(true|false|\d)$/.test(value)

/** Neither for the background work of the service, nor to find out who calls. */
const isForCaller = () => !['service', 'admission'].includes(currentFairShareKey()[0])

const withQuery = called(api).filter(({ entry }) => entry.query !== undefined)

/** Fields that have none on what a scenario has, and the tests that show their effect. */
const shownElsewhere: Record<string, { fields: string[]; by: string }> = {
  'logTails.read': {
    fields: ['kind', 'level', 'component', 'source', 'limit'],
    by: 'test/logs/tails.test.ts',
  },
  'search.everything': { fields: ['limit'], by: 'test/search/search.test.ts' },
  'ssoSignIn.metadata': { fields: ['signed'], by: 'test/sso/sign-in/saml-flow.test.ts' },
}

describe('every field of a query has an effect', () => {
  let service: TestService
  let hand: ScenarioTools
  let line: Line
  /** What the database was asked. */
  let asked: (readonly [sql: string, values: readonly unknown[]])[] = []

  beforeAll(async () => {
    const { run } = SqliteConnection.prototype
    vi.spyOn(SqliteConnection.prototype, 'run').mockImplementation(function (
      this: SqliteConnection,
      ...query
    ) {
      if (isForCaller()) asked.push(query)
      return run.apply(this, query)
    })
    const { executeQuery } = ReaderPool.prototype
    vi.spyOn(ReaderPool.prototype, 'executeQuery').mockImplementation(function (this: ReaderPool, query) {
      if (isForCaller()) asked.push([query.sql, query.parameters])
      return executeQuery.call(this, query) as never
    })
    service = await startService(() => openMigrated('sqlite'))
    hand = scenarioTools(service, await buildWorld(service), systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    vi.restoreAllMocks()
    await line.close()
    await service.close()
  })

  it.each(withQuery)('of $name', async ({ name, entry }) => {
    const { input, token } = await scenarioOf(name, entry, hand)
    const fields = Object.entries<z.ZodType>(entry.query!.shape)
    const required = Object.fromEntries(
      fields.flatMap(([field, schema]) => (optional(schema) ? [] : [[field, input.query[field]]])),
    )
    const today = new RegExp(`${new Date().toISOString().slice(0, 10)}T[\\d:.]+Z|"requestId":"[^"]+"`, 'g')
    /** What a call replies and asks the database, but for the time. */
    const call = async (query: Record<string, unknown>) => {
      asked = []
      const { status, text } = await line.send(toWire(entry, { ...input, query }, token))
      const reads = asked
        .filter(([sql]) => /^select/i.test(sql))
        .map((one) => JSON.stringify(one).replace(today, ''))
      return {
        reply: `${status} ${text}`.replace(today, ''),
        reads: [...new Set(reads)].join(),
        values: JSON.stringify(asked.map(([, values]) => values)),
      }
    }
    // One that needs a field of several gets all that its scenario gives.
    const base = (await call(required)).reply.startsWith('2') ? required : input.query
    const [first, second] = [await call(base), await call(base)]
    // A list of audit entries has one more each time: what stays is the status.
    const shown = (reply: string) => (first.reply === second.reply ? reply : reply.slice(0, 3))
    const hasEffect = async (field: string, value: string) => {
      const { [field]: _, ...others } = base
      const without = await call(others)
      const { reply, reads, values } = await call({ ...others, [field]: value })
      if (shown(reply) !== shown(without.reply)) return true
      // A time is asked with its milliseconds.
      return isText(value) ? values.includes(value.slice(0, 19)) : reads !== without.reads
    }
    const unread: string[] = []
    for (const [field, schema] of fields) {
      const said = input.query[field]
      const all = [...(typeof said === 'string' ? [said] : []), ...valuesFor(schema)]
      const values = all.some(isText) ? all.filter(isText) : all
      let isRead = !optional(schema)
      for (const value of values) isRead ||= await hasEffect(field, value)
      if (!isRead) unread.push(field)
    }
    expect(unread.filter((field) => !shownElsewhere[name]?.fields.includes(field))).toEqual([])
  })
})
