import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Client } from '../../src/core/client.ts'
import { inTurn } from '../databases.ts'
import { startService, testClock } from '../harness.ts'
import { buildWorld, systemToken } from '../world.ts'
import { memoryArchive } from './retention-world.ts'

const { show, change, hold, run } = api.auditRetention
const year = 365 * 86_400

inTurn((open) => {
  const begin = async (archive?: ReturnType<typeof memoryArchive>) => {
    // Long enough ago that tokens of today are still valid a year later.
    const clock = testClock(new Date(Date.now() - 500 * 86_400_000).toISOString())
    const service = await startService(open, { clock, outside: { archive } })
    const world = await buildWorld(service)
    const { id: orgId } = world.orgs.bakery
    const query = { orgId }
    return { service, clock, orgId, query, ...world, client: service.client(world.tokens.acme) }
  }

  const entriesOf = async (client: Client, orgId: string) =>
    (await client.call(api.auditLogs.list, { query: { orgId, limit: 100 } })).data

  describe('the retention policy of an audit log', () => {
    it('has defaults, and changes field by field with an audit entry', async () => {
      const { client, query, orgId } = await begin()
      expect(await client.call(show, { query })).toEqual({
        orgId,
        retentionDays: 365,
        archiveToS3: false,
        lastCleanupAt: null,
        hold: null,
        anchor: null,
        archive: { configured: false, objects: 0, upTo: null },
        lastError: null,
      })
      expect(await client.call(change, { query, body: { retentionDays: 3650 } })).toMatchObject({
        retentionDays: 3650,
        archiveToS3: false,
      })
      const [entry] = (await entriesOf(client, orgId)).filter(
        ({ action }) => action === 'audit.retention.update',
      )
      expect(entry?.details).toEqual({
        before: { retentionDays: 365, archiveToS3: false },
        after: { retentionDays: 3650, archiveToS3: false },
      })
    })

    it('is refused out of bounds, or with an archive that is not configured', async () => {
      const { client, query } = await begin()
      for (const retentionDays of [0, 3651, 1.5]) {
        const refused = client.call(change, { query, body: { retentionDays } })
        await expect(refused).rejects.toMatchObject({ status: 400 })
      }
      await expect(client.call(change, { query, body: {} })).rejects.toMatchObject({ status: 400 })
      await expect(client.call(change, { query, body: { archiveToS3: true } })).rejects.toMatchObject({
        status: 400,
        message: expect.stringMatching(/archiveToS3.*AUDIT_ARCHIVE_S3_BUCKET/),
      })
      expect(await client.call(show, { query })).toMatchObject({ archiveToS3: false })
    })

    it('is changed by partner or system with a second factor, not by the organization', async () => {
      const { service, query, tokens, orgs } = await begin()
      const body = { retentionDays: 1 }
      const status = (token: string, at: object = query) =>
        service
          .client(token)
          .call(change, { query: at, body })
          .then(
            () => 200,
            (error) => error.status,
          )
      expect(await status(tokens.bakery)).toBe(403)
      expect(await status(tokens.globex)).toBe(403)
      expect(await status(tokens.acmeNone)).toBe(403)
      expect(await status(await systemToken(service, { mfa: false }))).toBe(403)
      expect(await status(tokens.acme, {})).toBe(400)
      expect(await status(tokens.acme)).toBe(200)
      expect(await status(tokens.system, {})).toBe(200)
      const garage = service.client(tokens.garage)
      expect(await garage.call(show, {})).toMatchObject({ orgId: orgs.garage.id, retentionDays: 365 })
      await expect(garage.call(show, { query })).rejects.toMatchObject({ status: 403 })
      const system = await service.client(tokens.system).call(show, {})
      expect(system).toMatchObject({ orgId: null, retentionDays: 1 })
    })
  })

  describe('a manual retention run', () => {
    it('shows what is due, deletes it with an audit entry, and the rest still verifies', async () => {
      const { client, query, clock, orgId } = await begin()
      const { length } = await entriesOf(client, orgId)
      clock.forward(year + 86_400)
      const { due } = await client.call(show, { query: { ...query, due: 'true' } })
      expect(due?.entries).toBeGreaterThanOrEqual(length)
      const done = await client.call(run, { query })
      expect(done).toMatchObject({ state: 'done', pruned: due?.entries })
      expect(done.retention.anchor).toEqual({ seq: due?.entries, prunedCount: due?.entries, time: clock() })
      const left = await entriesOf(client, orgId)
      expect(left.find(({ action }) => action === 'audit.retention.run')?.details).toMatchObject({
        pruned: due?.entries,
        state: 'done',
      })
      expect(left.every(({ seq }) => seq > done.pruned)).toBe(true)
    })

    it('archives first if the policy says so, and deletes nothing when that fails', async () => {
      const archive = memoryArchive()
      const { client, query, clock, orgId } = await begin(archive)
      await client.call(change, { query, body: { archiveToS3: true } })
      clock.forward(year + 86_400)
      archive.fails = new Error('it broke')
      const failed = await client.call(run, { query })
      expect(failed).toMatchObject({ state: 'failed', pruned: 0 })
      expect(failed.retention.lastError?.message).toContain('unexpected error')
      archive.fails = undefined
      const done = await client.call(run, { query })
      expect(done.pruned).toBeGreaterThan(0)
      expect(done.retention).toMatchObject({ lastError: null, archive: { configured: true, objects: 1 } })
      expect([...archive.objects.keys()][0]).toMatch(new RegExp(`^${orgId}/`))
    })
  })

  describe('a legal hold', () => {
    it('has a reason and an author, prevents all deletion, and is audited both ways', async () => {
      const { client, query, clock, orgId } = await begin()
      await expect(client.call(hold, { query, body: { held: true } })).rejects.toMatchObject({ status: 400 })
      const held = await client.call(hold, { query, body: { held: true, reason: 'Case 7' } })
      expect(held.hold).toMatchObject({
        reason: 'Case 7',
        userEmail: 'acme-admin@example.com',
        since: clock(),
      })
      clock.forward(year + 86_400)
      expect(await client.call(run, { query })).toMatchObject({ state: 'held', pruned: 0 })
      const free = await client.call(hold, { query, body: { held: false, reason: 'closed' } })
      expect(free.hold).toBeNull()
      const entries = await entriesOf(client, orgId)
      const holdEntries = entries.filter(({ action }) => action.startsWith('audit.hold'))
      expect(holdEntries.map(({ action }) => action)).toEqual(['audit.hold.release', 'audit.hold.set'])
      expect(holdEntries[0]?.details).toMatchObject({
        reason: 'closed',
        before: { hold: { reason: 'Case 7' } },
      })
      expect((await client.call(run, { query })).pruned).toBeGreaterThan(0)
    })
  })
})
