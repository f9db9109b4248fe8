import { CompiledQuery, createQueryId, type KyselyPlugin, type RootOperationNode, sql } from 'kysely'
import { describe, expect, it } from 'vitest'
import { deleteEndedRecords } from '../../daemon/retention.ts'
import { api } from '../../src/api.ts'
import { sections } from '../../src/configuration/contract.ts'
import { listApplies } from '../../src/configuration/history/store.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { Scope } from '../../src/core/scope.ts'
import { addSeconds } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { testSecrets } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, addRole } from '../world.ts'
import type { Document } from './fixture.ts'
import { first, hook, pruned, script, second, startWithHistory } from './history-fixture.ts'

onEveryDatabase((kind, open) => {
  describe('the history', () => {
    it('has each apply that changed something, newest first, with who applied it and how much', async () => {
      const { acme } = await startWithHistory(open)
      const one = await acme.apply(first, { revision: 'a1' })
      const two = await acme.apply(second, { ...pruned, revision: 'b2', set: 'default' })
      await acme.apply(second, { ...pruned, revision: 'c3' })
      const { left: _, refused: __, ...totals } = two.totals
      expect(await acme.history()).toMatchObject([
        { id: two.applyId, set: 'default', revision: 'b2', rollsBack: null, totals, canRollBack: true },
        { id: one.applyId, revision: 'a1', appliedBy: 'acme-admin@example.com' },
      ])
    })

    it('is that of the tenant, and of nobody else', async () => {
      const { service, world, by, acme, bakery } = await startWithHistory(open)
      const { id } = world.orgs.bakery
      const ours = await bakery.apply({ sites: [{ name: 'Ours' }] }, { set: 'ours' })
      const theirs = await acme.apply({ sites: [{ org: 'bakery', name: 'Theirs' }] })
      const ids = async (one: typeof acme) => (await one.history()).map((apply) => apply.id)
      expect(await ids(bakery)).toEqual([ours.applyId])
      expect(await ids(by(world.tokens.acme, id))).toEqual([ours.applyId])
      expect(await ids(acme)).toEqual([theirs.applyId])
      for (const token of [world.tokens.garage, world.tokens.globex, world.tokens.harbor]) {
        expect(await ids(by(token))).toEqual([])
        for (const apply of [ours, theirs]) {
          await expect(by(token).planBack(apply.applyId)).rejects.toMatchObject({ status: 404 })
          await expect(by(token).rollBack(apply.applyId, 'x')).rejects.toMatchObject({ status: 404 })
        }
      }
      await expect(bakery.planBack(theirs.applyId)).rejects.toMatchObject({ status: 404 })
      const roleId = await addRole(service, id, 'Nobody', ['sites:read'])
      const nobody = by(await addOrgUser(service, 'nobody', id, { role: roleId }))
      await expect(nobody.history()).rejects.toMatchObject({ status: 403 })
    })

    it('keeps the last 100 applies of a tenant and what retention allows, and none of a deleted one', async () => {
      const { service, world, acme } = await startWithHistory(open)
      const partner_id = world.partners.acme
      const row = {
        partner_id,
        org_id: null,
        owner: partner_id,
        set_name: 'x',
        revision: null,
        applied_by: 'x',
      }
      const change = { section: 'scripts', action: 'create', org_id: null }
      const { read, write } = service.storage
      // Each has half of the characters that a tenant may have.
      const half = 32 * 1024 * 1024
      await write(async (tx) => {
        for (let n = 0; n < 100; n += 1) {
          const id = `old-${String(n).padStart(3, '0')}`
          const applied_at = addSeconds('2020-01-01T00:00:00.000Z', n)
          await tx
            .insertInto('config_applies')
            .values({ id, applied_at, rolls_back: null, characters: half, ...row })
            .execute()
          await tx
            .insertInto('config_changes')
            .values({ id: `change-${n}`, apply_id: id, position: 0, ...change, content: '' })
            .execute()
        }
      })
      const { applyId } = await acme.apply({ scripts: [{ name: 'Clean', ...script }] })
      const list = (page: number) =>
        acme.client.call(api.configurationApplies.list, { query: { page, limit: 60 } })
      const [one, two] = [await list(1), await list(2)]
      expect([one.data.length, two.data.length, two.pagination.total]).toEqual([60, 40, 100])
      const all = [...one.data, ...two.data]
      expect(all.slice(0, 3)).toMatchObject([
        { id: applyId, canRollBack: true },
        { id: 'old-099', canRollBack: true },
        { id: 'old-098', canRollBack: false },
      ])
      // What is listed without its values is still counted.
      expect(all.map(({ totals }) => totals.create)).toEqual(Array(100).fill(1))
      const changes = await read
        .selectFrom('config_changes')
        .select('apply_id')
        .where('content', 'is not', null)
        .execute()
      expect(changes.map(({ apply_id }) => apply_id).sort()).toEqual([applyId, 'old-099'].sort())
      await expect(acme.planBack('00000000-0000-4000-8000-000000000000')).rejects.toMatchObject({
        status: 404,
      })

      const never = {
        alerts: undefined,
        scripts: undefined,
        devices: undefined,
        keys: undefined,
        rollouts: undefined,
        releases: undefined,
        checkpoints: undefined,
        proofs: undefined,
        archives: undefined,
      }
      const news = await newEntries(service)
      await deleteEndedRecords(service.storage, { ...never, applies: 30 }, new Date().toISOString())
      expect((await acme.history()).map(({ id }) => id)).toEqual([applyId])
      expect((await news()).map(({ action }) => action)).toContain('configuration_apply.delete')
      await service.client(world.tokens.system).call(api.partners.remove, { params: { id: partner_id } })
      expect(await read.selectFrom('config_applies').select('id').execute()).toEqual([])
      expect(await read.selectFrom('config_changes').select('id').execute()).toEqual([])
    })

    it('counts what its reader may see', async () => {
      const { service, world, by, acme, bakery } = await startWithHistory(open)
      const { id } = world.orgs.bakery
      const sites = ['bakery', 'garage'].map((org) => ({ org, name: 'Annex' }))
      await acme.apply({ sites, scripts: [{ name: 'Clean', ...script }] })
      expect((await acme.history()).map(({ totals }) => totals.create)).toEqual([3])
      await bakery.apply(
        { sites: [{ name: 'Ours' }], scripts: [{ name: 'Clean', ...script }] },
        { set: 'ours' },
      )
      const reads = await addRole(service, id, 'Reader', ['config:read', 'scripts:read'])
      const reader = by(await addOrgUser(service, 'reader', id, { role: reads }))
      expect((await reader.history()).map(({ totals }) => totals.create)).toEqual([1])
    })

    it('has its totals from an index, without the values', async () => {
      const { service, world, acme } = await startWithHistory(open)
      const scripts = Array.from({ length: 60 }, (_, n) => ({ name: `Clean ${n}`, ...script }))
      await acme.apply({ scripts })
      const partnerId = world.partners.acme
      const scope: Scope = { kind: 'partner', partnerId, orgs: 'all' }
      const about = {
        owner: { partnerId, orgId: null },
        readable: sections,
        page: { page: 1, limit: 50 },
      }
      const nodes: RootOperationNode[] = []
      const noted: KyselyPlugin = {
        transformQuery({ node }) {
          nodes.push(node)
          return node
        },
        transformResult: async ({ result }) => result,
      }
      // Unless all rows are known to be visible, an index alone does not spare the table.
      if (kind === 'postgres') await sql`vacuum (analyze) config_changes`.execute(service.storage.read)
      const plan = await service.storage.write(async (tx) => {
        await listApplies(tx.withPlugin(noted), scope, about)
        if (kind === 'postgres') {
          for (const how of ['enable_seqscan', 'enable_bitmapscan'])
            await sql`set local ${sql.raw(how)} = off`.execute(tx)
        }
        const counting = tx.getExecutor().compileQuery(nodes.at(-1)!, createQueryId())
        const explain = kind === 'postgres' ? 'explain' : 'explain query plan'
        const explained = CompiledQuery.raw(`${explain} ${counting.sql}`, [...counting.parameters])
        return JSON.stringify((await tx.executeQuery(explained)).rows)
      })
      expect(plan).toMatch(/(COVERING INDEX|Index Only Scan using) config_changes_totals/)
    })

    it('is of the partner that a system administrator names', async () => {
      const { world, by, acme } = await startWithHistory(open)
      const { applyId } = await acme.apply({ sites: [{ org: 'bakery', name: 'Annex' }] })
      const system = by(world.tokens.system, { partnerId: world.partners.acme })
      expect((await system.history()).map(({ id }) => id)).toEqual([applyId])
      expect((await system.rollBack(applyId)).changes).toMatchObject([{ action: 'delete', name: 'Annex' }])
      await expect(by(world.tokens.system).history()).rejects.toMatchObject({ code: 'tenant_required' })
    })

    it('keeps no secret, and nothing that is made of one', async () => {
      const { service, acme } = await startWithHistory(open)
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      const kept = async () => {
        const rows = await service.storage.read
          .selectFrom('config_changes')
          .select(['id', 'content'])
          .execute()
        return rows.map(({ id, content }) => cipher.decrypt(content!, `config_changes.content.${id}`)).join()
      }
      const files = (secret: string): Document => ({
        organizations: [{ slug: 'florist', name: 'Florist', settings: { color: 'green', apiToken: secret } }],
        sites: [{ org: 'bakery', name: 'Annex', contact: { phone: '1', password: secret } }],
        webhooks: [{ ...hook, secret, headers: [{ key: 'X-Key', value: secret }] }],
      })
      await acme.apply(files('hush-one'))
      await acme.apply(files('hush-two'))
      await acme.apply({ organizations: [], sites: [], webhooks: [] }, pruned)
      const text = await kept()
      expect(text).toContain('green')
      for (const secret of ['hush-one', 'hush-two', 'k-e-y'])
        for (const told of [secret, cipher.fingerprint(secret)]) expect(text).not.toContain(told)
    })

    it('keeps values sealed', async () => {
      const { service, acme } = await startWithHistory(open)
      await acme.apply(first)
      const rows = await service.storage.read.selectFrom('config_changes').select('content').execute()
      expect(rows).toHaveLength(8)
      const isSealed = (content: string | null) => content?.startsWith('v1.') && !content.includes('Florist')
      expect(rows.filter(({ content }) => !isSealed(content))).toEqual([])
    })
  })
})
