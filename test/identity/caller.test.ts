import { sql } from 'kysely'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { api } from '../../src/api.ts'
import { findPresentedKey } from '../../src/credentials/api-keys/principal.ts'
import { apiKeyHash } from '../../src/credentials/api-keys/rules.ts'
import { findCaller } from '../../src/identity/principal.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { tablesWithoutVersion } from '../../src/storage/commit-version.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { findWorkload } from '../../src/trust/principal.ts'
import { workloadTokens } from '../../src/trust/tokens.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService, testSecrets } from '../harness.ts'
import { start } from '../trust/trust-fixture.ts'
import { addGroup, addOrgUser, buildWorld } from '../world.ts'

onEveryDatabase((kind, open) => {
  describe('the permissions of a signed-in user', () => {
    it('follow the database at once, even when another process changes it', async () => {
      const service = await startService(open)
      const { orgs, tokens } = await buildWorld(service)
      const { dataDir, databaseUrl } = service
      const other = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
      const list = () => service.client(tokens.acmeBakery).call(api.orgs.list)
      expect((await list()).data).toHaveLength(1)
      expect((await list()).data).toHaveLength(1)
      await other.write((tx) =>
        tx.deleteFrom('partner_membership_orgs').where('org_id', '=', orgs.bakery.id).execute(),
      )
      expect((await list()).data).toEqual([])
      await other.write((tx) => tx.updateTable('roles').set({ force_mfa: 1 }).execute())
      await other.write((tx) => tx.updateTable('users').set({ mfa_method: null }).execute())
      await expect(list()).rejects.toMatchObject({ status: 428, code: 'mfa_enrollment_required' })
      await other.write((tx) => tx.updateTable('users').set({ status: 'disabled' }).execute())
      await expect(list()).rejects.toMatchObject({ status: 403, code: 'account_inactive' })
      await other.close()
    })

    it('are reloaded after each commit that may affect them, or that another process makes', async () => {
      const { storage, dataDir, databaseUrl } = await open()
      if (kind === 'postgres') return expect(storage.version()).toBeUndefined()
      const other = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
      const writeOutboxRow = (tx: Db) => tx.insertInto('outbox').values({ chain: 'x', entry: '{}' }).execute()
      const forceMfa = (tx: Db) => tx.updateTable('roles').set({ force_mfa: 1 }).execute()
      const rawDelete = (tx: Db) => sql`with none as (select 1) delete from roles where false`.execute(tx)
      const seen = [storage.version()]
      for (const [writer, work, unsynced] of [
        [storage, forceMfa],
        [other, writeOutboxRow],
        [storage, rawDelete],
        [storage, forceMfa, true],
        [other, writeOutboxRow],
      ] as const) {
        await writer.write<unknown>(work, { unsynced: unsynced ?? false })
        seen.push(storage.version())
        await storage.write(writeOutboxRow)
        expect(storage.version()).toBe(seen.at(-1))
      }
      await storage.write((tx) => writeOutboxRow(tx).then(() => forceMfa(tx)))
      seen.push(storage.version())
      await other.close()
      expect(new Set(seen).size).toBe(7)
    })

    it('depend on no table whose commits keep the storage version', async () => {
      const { service, world, bakery, client, create, exchange, tokenOf, clock } = await start(open)
      const { orgs, tokens } = world
      const site = orgs.bakery.siteId
      const group = await addGroup(service, bakery.id, 'Tills', [])
      const narrowed = [
        await addOrgUser(service, 'narrow', bakery.id, { siteIds: [site] }),
        await addOrgUser(service, 'grouped', bakery.id, { groupIds: [group] }),
      ]
      const key = await client.call(api.apiKeys.create, { body: { name: 'CI', scopes: ['devices:read'] } })
      await create()
      const { accessToken } = await exchange(await tokenOf())

      const { dataDir, databaseUrl } = service
      const ownStorage = await openStorage({ dataDir, ...(databaseUrl !== undefined && { databaseUrl }) })
      onTestFinished(() => ownStorage.close())
      const queries = vi.spyOn(ownStorage.read.getExecutor(), 'executeQuery')
      const people = createAccessTokens(testSecrets.JWT_SECRET)
      for (const token of [...Object.values(tokens), ...narrowed]) {
        const claims = await people.verify(token, new Date())
        expect(await findCaller(ownStorage.read, claims!)).toMatchObject({ kind: 'user' })
      }
      expect(await findPresentedKey(ownStorage.read, apiKeyHash(key.key))).toMatchObject({
        caller: { orgId: bakery.id },
      })
      const run = await workloadTokens(testSecrets.JWT_SECRET).verify(accessToken, new Date(clock()))
      expect(await findWorkload(ownStorage.read, run!)).toMatchObject({ kind: 'workload' })

      const tablesRead = new Set(
        queries.mock.calls.flatMap(([{ sql: text }]) => text.match(/(?<=")\w+(?=")/g) ?? []),
      )
      expect([...tablesRead]).toEqual(
        expect.arrayContaining([
          'users',
          'sessions',
          'role_permissions',
          'api_keys',
          'trust_policies',
          'partners',
        ]),
      )
      expect(tablesWithoutVersion.filter((table) => tablesRead.has(table))).toEqual([])
    })
  })
})
