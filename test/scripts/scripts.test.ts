import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { addOrgUser, buildWorld } from '../world.ts'

const refused = (status: number, code: string) => expect.objectContaining({ status, code })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const client = (token: keyof typeof world.tokens) => service.client(world.tokens[token])
    const script = { osTypes: ['linux' as const], language: 'bash' as const, content: 'true\n' }
    const create = (token: keyof typeof world.tokens, name: string, more: Record<string, unknown> = {}) =>
      client(token).call(api.scripts.create, { body: { ...script, name, ...more } })
    const names = async (token: keyof typeof world.tokens, query: Record<string, string> = {}) =>
      (await client(token).call(api.scripts.list, { query })).data.map(({ name }) => name)
    return { service, world, client, create, names }
  }

  describe('a script', () => {
    it('is available to its organization, to all of its partner, or to everyone', async () => {
      const { world, client, create, names } = await start()
      const own = await create('bakery', 'own')
      const shared = await create('acme', 'shared')
      const builtIn = await create('system', 'built in', { isSystem: true })
      expect(own).toMatchObject({ orgId: world.orgs.bakery.id, partnerId: null, isSystem: false, version: 1 })
      expect(shared).toMatchObject({ orgId: null, partnerId: world.partners.acme, isSystem: false })
      expect(builtIn).toMatchObject({ orgId: null, partnerId: null, isSystem: true })

      expect(await names('bakery')).toEqual(['bakery script', 'built in', 'own', 'shared'])
      expect(await names('garage')).toEqual(['built in', 'garage script', 'shared'])
      expect(await names('harbor')).toEqual(['built in', 'harbor script'])
      expect(await names('acme')).toEqual(['bakery script', 'built in', 'garage script', 'own', 'shared'])
      expect(await names('acmeNone')).toEqual(['built in', 'shared'])
      expect(await names('globex')).toEqual(['built in', 'harbor script'])
      expect(await names('acme', { orgId: world.orgs.garage.id })).toEqual([
        'built in',
        'garage script',
        'shared',
      ])
      const params = { id: shared.id }
      expect((await client('garage').call(api.scripts.show, { params })).content).toBe('true\n')
      await expect(client('harbor').call(api.scripts.show, { params })).rejects.toEqual(
        refused(404, 'not_found'),
      )
    })

    it('is changed and deleted by its owner only, however many use it', async () => {
      const { client, create } = await start()
      const shared = await create('acme', 'shared')
      const builtIn = await create('system', 'built in', { isSystem: true })
      const change = (token: 'bakery' | 'acme' | 'acmeBakery' | 'system', id: string) =>
        client(token).call(api.scripts.update, { params: { id }, body: { category: 'mine' } })
      const remove = (token: 'bakery' | 'acme' | 'acmeBakery' | 'system', id: string) =>
        client(token).call(api.scripts.remove, { params: { id } })
      for (const attempt of [change, remove]) {
        await expect(attempt('bakery', shared.id)).rejects.toEqual(refused(403, 'forbidden'))
        await expect(attempt('bakery', builtIn.id)).rejects.toEqual(refused(403, 'forbidden'))
        await expect(attempt('acme', builtIn.id)).rejects.toEqual(refused(403, 'forbidden'))
        await expect(attempt('acmeBakery', shared.id)).rejects.toEqual(refused(403, 'partner_access_limited'))
      }
      await change('acme', shared.id)
      await change('system', builtIn.id)
      await remove('acme', shared.id)
      await remove('system', builtIn.id)
    })

    it('can be created only where its author has access', async () => {
      const { world, create } = await start()
      const { partners, orgs } = world
      await expect(create('bakery', 'x', { isSystem: true })).rejects.toEqual(refused(403, 'forbidden'))
      await expect(create('acme', 'x', { isSystem: true })).rejects.toEqual(refused(403, 'forbidden'))
      await expect(create('acmeBakery', 'x')).rejects.toEqual(refused(403, 'partner_access_limited'))
      await expect(create('acmeBakery', 'x', { orgId: orgs.garage.id })).rejects.toEqual(
        refused(403, 'org_access_denied'),
      )
      await expect(create('bakery', 'x', { partnerId: partners.acme })).rejects.toEqual(
        refused(403, 'partner_mismatch'),
      )
      await expect(create('acme', 'x', { partnerId: partners.globex })).rejects.toEqual(
        refused(403, 'partner_mismatch'),
      )
      await expect(create('system', 'x')).rejects.toEqual(refused(403, 'tenant_required'))
      await expect(create('system', 'x', { isSystem: true, orgId: orgs.bakery.id })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.isSystem' }],
      })
      expect(await create('acmeBakery', 'x', { orgId: orgs.bakery.id })).toMatchObject({
        orgId: orgs.bakery.id,
      })
      expect(await create('system', 'x', { partnerId: partners.globex })).toMatchObject({
        partnerId: partners.globex,
      })
    })

    it('gets a new version when its content changes, and only then', async () => {
      const { client, create } = await start()
      const { id } = await create('bakery', 'own')
      const change = (body: Record<string, unknown>) =>
        client('bakery').call(api.scripts.update, { params: { id }, body })
      expect(await change({ name: 'renamed', timeoutSeconds: 3600 })).toMatchObject({
        version: 1,
        name: 'renamed',
      })
      expect((await change({ content: 'true\n' })).version).toBe(1)
      expect((await change({ content: 'false\n', parameters: { level: 2 } })).version).toBe(2)
      const versions = await Promise.all(['a', 'b', 'c'].map((content) => change({ content })))
      expect(versions.map(({ version }) => version).sort()).toEqual([3, 4, 5])
      const shown = await client('bakery').call(api.scripts.show, { params: { id } })
      expect(shown).toMatchObject({ version: 5, parameters: { level: 2 }, timeoutSeconds: 3600 })
    })

    it('has at most a million characters, of any kind', async () => {
      const { client, create } = await start()
      const content = '\u0001"é'.repeat(333_333)
      const { id } = await create('bakery', 'long', { content })
      expect((await client('bakery').call(api.scripts.show, { params: { id } })).content).toBe(content)
      await expect(create('bakery', 'longer', { content: 'x'.repeat(1_000_001) })).rejects.toMatchObject({
        status: 400,
        details: [{ path: 'body.content', message: 'must be at most 1000000 characters' }],
      })
    })

    it('is refused with all faults at once', async () => {
      const { create } = await start()
      const wrong = { osTypes: [], language: 'ruby', timeoutSeconds: 3601, runAs: 'root', content: '' }
      const attempt = create('bakery', '', wrong)
      await expect(attempt).rejects.toMatchObject({ status: 400 })
      const faults = await attempt.catch(({ details }) => details as { path: string }[])
      expect((faults as { path: string }[]).map(({ path }) => path).sort()).toEqual(
        ['content', 'language', 'name', 'osTypes', 'runAs', 'timeoutSeconds'].map((one) => `body.${one}`),
      )
    })

    it('that is deleted is inaccessible to everyone, but kept in the database', async () => {
      const { service, client, create, names } = await start()
      const { id } = await create('bakery', 'own')
      await client('bakery').call(api.scripts.remove, { params: { id } })
      expect(await names('bakery')).toEqual(['bakery script'])
      for (const token of ['bakery', 'system'] as const) {
        const again = client(token).call(api.scripts.remove, { params: { id } })
        await expect(again).rejects.toEqual(refused(404, 'not_found'))
      }
      const row = service.storage.read.selectFrom('scripts').select('deleted_at').where('id', '=', id)
      expect(await row.executeTakeFirst()).toEqual({ deleted_at: expect.any(String) })
    })

    it('is audited with length and hash of its content, not with the content', async () => {
      const { service, client, create } = await start()
      const news = await newEntries(service)
      const { id } = await create('bakery', 'own', { content: 'echo a-telling-line' })
      await client('bakery').call(api.scripts.update, { params: { id }, body: { content: 'echo another' } })
      await client('bakery').call(api.scripts.remove, { params: { id } })
      const entries = await news()
      expect(entries.map(({ action }) => action)).toEqual(['script.create', 'script.update', 'script.delete'])
      expect(entries[1]?.details).toEqual({
        before: { version: 1, contentLength: 19, contentSha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
        after: { version: 2, contentLength: 12, contentSha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
      })
      expect(JSON.stringify(entries)).not.toContain('a-telling-line')
    })

    it('requires the permission for each action', async () => {
      const { service, world, client, create } = await start()
      const { id } = await create('bakery', 'own')
      const token = await addOrgUser(service, 'technician', world.orgs.bakery.id, { role: 'Org Technician' })
      const technician = service.client(token)
      await technician.call(api.scripts.show, { params: { id } })
      const body = { category: 'x' }
      await expect(technician.call(api.scripts.update, { params: { id }, body })).rejects.toEqual(
        refused(403, 'forbidden'),
      )
      const { key } = await client('bakery').call(api.apiKeys.create, {
        body: { name: 'writer', scopes: ['scripts:write'] },
      })
      const program = service.client(undefined, { 'x-api-key': key })
      await program.call(api.scripts.update, { params: { id }, body })
      await expect(program.call(api.scripts.remove, { params: { id } })).rejects.toMatchObject({
        status: 403,
      })
    })
  })

  it('the list of scripts can be filtered by language, system, category, kind and text', async () => {
    const { service, create, names } = await start()
    const windows = { osTypes: ['windows', 'macos'], language: 'python', category: 'Printing' }
    await create('bakery', 'Spooler ΣΊΣΥΦΟΣ', { ...windows, description: '100% of it' })
    await create('system', 'built in', { isSystem: true })
    expect(await names('bakery', { language: 'python' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    expect(await names('bakery', { osType: 'macos' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    expect(await names('bakery', { osType: 'linux' })).toEqual(['bakery script', 'built in'])
    expect(await names('bakery', { category: 'Printing' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    expect(await names('bakery', { isSystem: 'true' })).toEqual(['built in'])
    expect(await names('bakery', { isSystem: 'false', limit: '1' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    expect(await names('bakery', { search: 'σίσυφος' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    expect(await names('bakery', { search: '0%' })).toEqual(['Spooler ΣΊΣΥΦΟΣ'])
    const keys = service.storage.read.selectFrom('scripts').select(['name_key', 'description_key'])
    expect(await keys.where('language', '=', 'python').execute()).toEqual([
      { name_key: 'spooler σίσυφοσ', description_key: '100% of it' },
    ])
  })
})
