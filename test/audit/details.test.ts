import { describe, expect, it } from 'vitest'
import { recordAudit, sealPending, sealPendingFor } from '../../src/audit/outbox.ts'
import { type AuditEvent, toDraftEntry } from '../../src/audit/rules.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemScope } from '../../src/core/scope.ts'
import type { Storage } from '../../src/storage/open.ts'
import { openMigrated } from '../databases.ts'

const now = '2026-01-01T00:00:00.000Z'

const draftOf = (details: Record<string, unknown>) => {
  const event: AuditEvent = {
    orgId: null,
    actorType: 'user',
    actorId: newId(),
    actorEmail: null,
    action: 'filter.update',
    resourceType: 'filter',
    resourceId: newId(),
    resourceName: 'one',
    details,
    ipAddress: null,
    userAgent: null,
    result: 'success',
  }
  return toDraftEntry(event, now)
}

describe('the details of an entry', () => {
  it('are stored unchanged up to 64 KiB', () => {
    const details = { after: { deviceIds: Array.from({ length: 1000 }, () => newId()) } }
    expect(draftOf(details).details).toEqual(details)
  })

  it('beyond that keep short values, and the size, hash and beginning of long ones', () => {
    const conditions = ['x'.repeat(500_000)]
    const { details } = draftOf({ before: { name: 'old', conditions }, after: { name: 'new', conditions } })
    expect(details).toMatchObject({
      before: { name: 'old', conditions: { shortened: { bytes: 500_004 } } },
      after: { name: 'new', conditions: { shortened: { sha256: expect.stringMatching(/^[0-9a-f]{64}$/) } } },
    })
    expect(JSON.stringify(details).length).toBeLessThan(5000)
  })

  it('are bounded for any number of values', () => {
    const after = Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`setting${n}`, 'x'.repeat(100)]))
    const { details } = draftOf({ after, ...Object.fromEntries([['note', 'y']]) })
    expect(details).toMatchObject({ after: { shortened: { bytes: expect.any(Number) } }, note: 'y' })
  })
})

describe('pending entries', () => {
  it('are all sealed, in transactions of bounded size', async () => {
    const { storage, close } = await openMigrated('postgres')
    const large = () => draftOf({ after: { list: Array.from({ length: 60 }, () => 'x'.repeat(1000)) } })
    const fill = () =>
      storage.write(async (tx) => {
        for (let n = 0; n < 50; n++) await recordAudit(tx, large())
      })
    let writes = 0
    const counting: Storage = {
      ...storage,
      write: (work, options) => {
        writes += 1
        return storage.write(work, options)
      },
    }
    const left = async () => (await storage.read.selectFrom('outbox').select('id').execute()).length
    await fill()
    await sealPending(counting)
    expect([await left(), writes >= 3 && writes <= 6]).toEqual([0, true])
    await fill()
    await sealPendingFor(counting, systemScope)
    expect(await left()).toBe(0)
    await close()
  })
})
