import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { joinPartner } from '../../src/identity/memberships.ts'
import { inTurn } from '../databases.ts'
import { startService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { dump } from '../laws/tables.ts'
import { addRole, addUser, buildWorld, tokenFor } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

type Named = Record<string, string>

const prune = { prune: true, pruneLimit: 100 }

/** Names in one organization, and slugs, which the database keeps apart. */
const kinds = [
  {
    section: 'sites',
    key: 'name',
    object: (name: string, renamedFrom?: string) => ({ org: 'bakery', name, ...from(renamedFrom) }),
  },
  {
    section: 'organizations',
    key: 'slug',
    object: (slug: string, renamedFrom?: string) => ({ slug, name: slug, ...from(renamedFrom) }),
  },
] as const
type Section = (typeof kinds)[number]['section']

const from = (renamedFrom?: string) => (renamedFrom === undefined ? {} : { renamedFrom })

inTurn((open) => {
  const start = async () => {
    const service = await startService(open)
    const world = await buildWorld(service)
    const acme = configurationOf(service)(world.tokens.acme)
    /** Applies files, whose plan, changes and audit entries are the same, line for line, and which then ask for nothing. */
    const settle = async (document: Document, options: object = {}) => {
      const planned = await acme.plan(document, options)
      const news = await newEntries(service)
      const done = await acme.apply(document, options)
      const lines = done.changes.map(({ action, name, renamedFrom }) =>
        [action, ...(renamedFrom === null ? [] : [renamedFrom]), name].join(' '),
      )
      expect(planned.changes.map(({ action, name }) => [action, name])).toEqual(
        done.changes.map(({ action, name }) => [action, name]),
      )
      const entries = (await news()).filter(({ action }) => action !== 'config.apply')
      const written = entries.map(({ action, resourceName, details }) => {
        const { before, after } = details as { before?: Named; after?: Named }
        const verb = action.split('.').at(-1)!
        const key = action.startsWith('organization.') ? 'slug' : 'name'
        const names = [before?.[key], after?.[key]].filter((one) => one !== undefined)
        return [verb, ...(verb === 'delete' || names.length === 0 ? [resourceName] : names)].join(' ')
      })
      expect((await acme.plan(document, options)).changes).toEqual([])
      const everything = JSON.stringify([planned, done, entries, [...(await dump(service.storage))]])
      expect(everything).not.toMatch(/aside [0-9a-f]{8}-/)
      return { lines, written, done }
    }
    const ids = async (section: Section) => {
      const all =
        section === 'sites'
          ? (await acme.client.call(api.sites.list, { query: { limit: 100 } })).data
          : (await acme.client.call(api.orgs.page, { query: { limit: 100 } })).data
      return new Map(all.map((one) => ['slug' in one ? one.slug : one.name, one.id]))
    }
    const params = async (section: Section, name: string) => ({
      params: { id: (await ids(section)).get(name)! },
    })
    const byHand = {
      rename: async (section: Section, name: string, to: string) =>
        section === 'sites'
          ? acme.client.call(api.sites.update, { ...(await params(section, name)), body: { name: to } })
          : acme.client.call(api.orgs.update, {
              ...(await params(section, name)),
              body: { slug: to, name: to },
            }),
      make: async (section: Section, name: string) =>
        section === 'sites'
          ? acme.client.call(api.sites.create, { body: { orgId: world.orgs.bakery.id, name } })
          : acme.client.call(api.orgs.create, { body: { slug: name, name } }),
      remove: async (section: Section, name: string) =>
        acme.client.call(
          section === 'sites' ? api.sites.remove : api.orgs.remove,
          await params(section, name),
        ),
    }
    const back = async ({ applyId }: { applyId: string }) => {
      const about = { params: { id: applyId } }
      const { version } = await acme.client.call(api.configurationApplies.plan, { ...about, body: prune })
      return acme.client.call(api.configurationApplies.rollback, { ...about, body: { ...prune, version } })
    }
    return { service, world, acme, settle, ids, byHand, back }
  }
  describe.each(kinds)('a name of $section', ({ section, key, object }) => {
    it('is free for who gets it when its files drop who had it', async () => {
      const { acme, settle, ids } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const before = await ids(section)
      const files = { [section]: [object('b', 'a')] }
      await expect(acme.plan(files)).rejects.toMatchObject({
        details: [
          { message: 'both "a" and "b" exist: delete or rename one first, or delete "b" with --prune' },
        ],
      })
      const { lines, written } = await settle(files, prune)
      expect(lines).toEqual(['delete b', 'update a b'])
      expect(written).toEqual(['delete b', 'update a b'])
      const after = await ids(section)
      expect([after.get('b'), after.has('a')]).toEqual([before.get('a'), false])
    })

    it('is exchanged for another, and passed on in a circle, once', async () => {
      const { acme, settle, ids } = await start()
      await acme.apply({ [section]: [object('a'), object('b'), object('c')] })
      const before = await ids(section)
      const swapped = { [section]: [object('a', 'b'), object('b', 'a'), object('c')] }
      const { lines, written } = await settle(swapped)
      expect(lines).toEqual(['update b a', 'update a b'])
      expect(written).toEqual(lines)
      const after = await ids(section)
      expect(['a', 'b', 'c'].map((name) => after.get(name))).toEqual(
        ['b', 'a', 'c'].map((name) => before.get(name)),
      )
      const circle = { [section]: [object('a', 'c'), object('b', 'a'), object('c', 'b')] }
      expect((await settle(circle)).written).toEqual(['update c a', 'update a b', 'update b c'])
      const last = await ids(section)
      expect(['a', 'b', 'c'].map((name) => last.get(name))).toEqual(
        ['c', 'b', 'a'].map((name) => before.get(name)),
      )
    })

    it('is passed on along a chain, unless the files go on to have the first', async () => {
      const { acme, settle, ids } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const before = await ids(section)
      const kept = { [section]: [object('a'), object('b', 'a'), object('c', 'b')] }
      expect((await settle(kept)).lines).toEqual(['create c'])
      expect((await acme.plan({ [section]: [object('d', 'b'), object('b', 'a')] })).totals).toMatchObject({
        create: 0,
        update: 2,
        left: 1,
      })
      const chain = { [section]: [object('b', 'a'), object('d', 'b')] }
      expect((await settle(chain, prune)).lines).toEqual(['update a b', 'update b d', 'delete c'])
      const after = await ids(section)
      expect([after.get('b'), after.get('d'), after.size]).toEqual([
        before.get('a'),
        before.get('b'),
        before.size,
      ])
    })

    it('that files go on to say was another is not given away again, whatever was done by hand', async () => {
      const { settle, ids, byHand } = await start()
      const swapped = { [section]: [object('a', 'b'), object('b', 'a')] }
      // Where neither was there, both are made, and nothing is exchanged.
      expect((await settle(swapped)).lines).toEqual(['create a', 'create b'])
      const kept = (await ids(section)).get('a')
      await byHand.remove(section, 'b')
      expect((await settle(swapped)).lines).toEqual(['create b'])
      expect((await ids(section)).get('a')).toBe(kept)
      // What is exchanged by hand is exchanged back.
      await byHand.rename(section, 'a', 'x')
      await byHand.rename(section, 'b', 'a')
      await byHand.rename(section, 'x', 'b')
      expect((await settle(swapped)).lines).toEqual(['update b a', 'update a b'])
      expect((await ids(section)).get('a')).toBe(kept)
    })

    it('that somebody changes by hand is drift: it is changed back, and nothing is made or deleted', async () => {
      const { acme, settle, ids, byHand } = await start()
      const files = { [section]: [object('a'), object('b')] }
      await acme.apply(files)
      const before = await ids(section)
      const { version } = await acme.plan(files, prune)
      await byHand.rename(section, 'a', 'x')
      await expect(acme.apply(files, prune, version)).rejects.toMatchObject({ status: 409 })
      const drift = await acme.plan(files, { ...prune, culprits: true })
      expect(drift.changes).toMatchObject([{ action: 'update', name: 'a', renamedFrom: 'x' }])
      const { culprits } = drift.changes[0]!
      expect(culprits).toContainEqual(expect.objectContaining({ field: key, by: 'acme-admin@example.com' }))
      const { lines, written, done } = await settle(files, prune)
      expect([lines, written]).toEqual([['update x a'], ['update x a']])
      expect(await ids(section)).toEqual(before)
      const rollback = { params: { id: done.applyId } }
      const back = await acme.client.call(api.configurationApplies.plan, { ...rollback, body: {} })
      await acme.client.call(api.configurationApplies.rollback, {
        ...rollback,
        body: { version: back.version },
      })
      expect((await ids(section)).get('x')).toBe(before.get('a'))
      expect((await settle(files, prune)).lines).toEqual(['update x a'])
      expect(await ids(section)).toEqual(before)
    })

    it('that somebody changes by hand is followed by files that have the new one instead', async () => {
      const { acme, settle, ids, byHand } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const before = await ids(section)
      await byHand.rename(section, 'a', 'x')
      const follows = { [section]: [object('x', 'a'), object('b')] }
      const followed = [{ section, name: 'x', nameInFiles: 'a' }]
      expect(await acme.plan(follows)).toMatchObject({ changes: [], renamedByHand: followed })
      const { done } = await settle(follows, prune)
      expect(done).toMatchObject({ changes: [], renamedByHand: followed })
      expect((await acme.plan(follows)).renamedByHand).toBeUndefined()
      // It is called so from now on, and was renamed once.
      expect((await settle({ [section]: [object('x', 'a'), object('a'), object('b')] })).lines).toEqual([
        'create a',
      ])
      expect((await settle({ [section]: [object('x', 'a'), object('b')] }, prune)).lines).toEqual([
        'delete a',
      ])
      await byHand.rename(section, 'x', 'y')
      expect((await settle({ [section]: [object('x'), object('b')] }, prune)).lines).toEqual(['update y x'])
      expect(await ids(section)).toEqual(
        new Map([...before].map(([name, id]) => [name === 'a' ? 'x' : name, id])),
      )
      // What they do not have any more is deleted, whatever it is called.
      await byHand.rename(section, 'b', 'y')
      expect((await settle({ [section]: [object('x')] }, prune)).lines).toEqual(['delete y'])
    })

    it('stays in the memory of the set unless who may change the object applies files that follow it', async () => {
      const { acme, service, world, ids, byHand } = await start()
      await acme.apply({ [section]: [object('a')] })
      await byHand.rename(section, 'a', 'x')
      const { acme: partnerId } = world.partners
      const permissions = ['config:read', 'config:apply', 'organizations:read', 'sites:read']
      const roleId = await addRole(service, { partnerId }, 'Files', permissions)
      const userId = await addUser(service, 'files')
      const membership = { partnerId, userId, roleId, orgs: 'all' as const }
      await service.storage.write((tx) => joinPartner(tx, membership, new Date().toISOString()))
      const reader = configurationOf(service)(await tokenFor(service, userId, { kind: 'partner', partnerId }))
      const { changes, renamedByHand } = await reader.apply({ [section]: [object('x')] })
      expect([changes, renamedByHand]).toEqual([[], undefined])
      const found = await acme.plan({ [section]: [object('a')] }, prune)
      expect(found.changes).toMatchObject([
        { action: 'update', renamedFrom: 'x', id: (await ids(section)).get('x') },
      ])
    })

    it('that files have given to another since is taken back from nobody', async () => {
      const { acme, settle, ids, byHand, back } = await start()
      const script = (content: string) => ({ name: 'Clean', osTypes: ['linux'], language: 'bash', content })
      await acme.apply({ [section]: [object('a')], scripts: [script('one')] })
      await byHand.rename(section, 'a', 'x')
      const followed = await acme.apply({ [section]: [object('x')], scripts: [script('two')] }, prune)
      const both = { [section]: [object('x'), object('a')], scripts: [script('two')] }
      await acme.apply(both)
      const before = await ids(section)
      await back(followed)
      expect((await settle({ [section]: both[section]! }, prune)).lines).toEqual([])
      expect(await ids(section)).toEqual(before)
    })

    it('that somebody changes by hand is no other than what files rename, and no new one of theirs', async () => {
      const { acme, settle, ids, byHand } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const before = await ids(section)
      await byHand.rename(section, 'a', 'x')
      expect((await settle({ [section]: [object('c', 'a'), object('b')] }, prune)).lines).toEqual([
        'update x c',
      ])
      await byHand.rename(section, 'c', 'x')
      const both = { [section]: [object('c', 'a'), object('b'), object('x')] }
      expect((await settle(both, prune)).lines.toSorted()).toEqual(['create x', 'update x c'])
      expect((await ids(section)).get('c')).toBe(before.get('a'))
      // What is displaced by a rename is not there under its name.
      await byHand.rename(section, 'b', 'z')
      const { lines } = await settle({ [section]: [object('b', 'c'), object('x')] })
      expect(lines).toEqual(['update c b'])
      const after = await ids(section)
      expect([after.get('b'), after.get('z')]).toEqual([before.get('a'), before.get('b')])
    })

    it('that somebody passes on or exchanges by hand is given back to who had it', async () => {
      const { acme, settle, ids, byHand } = await start()
      const files = { [section]: [object('a'), object('b'), object('c')] }
      await acme.apply(files)
      const before = await ids(section)
      const pass = async (...steps: [string, string][]) => {
        for (const [from, to] of steps) await byHand.rename(section, from, to)
        const { lines } = await settle(files, prune)
        expect(await ids(section)).toEqual(before)
        return lines
      }
      expect(await pass(['b', 'd'], ['a', 'b'])).toEqual(['update b a', 'update d b'])
      expect(await pass(['a', 'x'], ['b', 'a'])).toEqual(['update x a', 'update a b'])
      expect(await pass(['a', 'x'], ['b', 'a'], ['x', 'b'])).toEqual(['update b a', 'update a b'])
      expect(await pass(['a', 'x'], ['b', 'a'], ['c', 'b'], ['x', 'c'])).toHaveLength(3)
    })

    it('that somebody has taken by hand is not taken back from what the set does not own', async () => {
      const { acme, byHand } = await start()
      const files = { [section]: [object('a'), object('b')] }
      await acme.apply(files)
      await byHand.rename(section, 'a', 'x')
      await byHand.make(section, 'a')
      for (const options of [{}, prune, { ...prune, adopt: true }])
        await expect(acme.plan(files, options)).rejects.toMatchObject({
          details: [
            {
              path: `body.document.${section}.0`,
              message: `it is called "x" now, and another of ${section} has the name "a": delete or rename one first`,
            },
          ],
        })
    })

    it('that somebody changed by hand is what it was once the apply is taken back', async () => {
      const { acme, settle, ids, byHand, back } = await start()
      const a = { [section]: [object('a'), object('k')] }
      await acme.apply(a)
      const before = await ids(section)
      const renamed = { [section]: [object('c', 'a'), object('k')] }
      await byHand.rename(section, 'a', 'x')
      await back((await settle(renamed, prune)).done)
      expect((await settle(a, prune)).lines).toEqual(['update x a'])
      await back((await settle(renamed, prune)).done)
      await byHand.rename(section, 'a', 'y')
      expect((await settle(a, prune)).lines).toEqual(['update y a'])
      expect(await ids(section)).toEqual(before)
      await byHand.rename(section, 'a', 'x')
      await back((await settle({ [section]: [object('k')] }, prune)).done)
      expect((await settle(a, prune)).lines).toEqual(['update x a'])
      if (section === 'organizations') return
      await byHand.rename(section, 'a', 'x')
      const moved = { sites: [{ ...object('x'), timezone: 'Europe/Paris' }, object('k')] }
      await back((await settle(moved, prune)).done)
      expect((await settle(a, prune)).lines).toEqual(['update x a'])
    })

    it('that only the files changed, or another apply since, is what it was or stays once an apply is taken back', async () => {
      const { acme, settle, ids, byHand, back } = await start()
      const valued = (name: string, value: string, renamedFrom?: string) =>
        section === 'sites'
          ? { ...object(name, renamedFrom), timezone: value }
          : { ...object(name, renamedFrom), name: value }
      const old = { [section]: [object('a'), object('k')] }
      await acme.apply(old)
      const before = await ids(section)
      // It follows one and changes another.
      await byHand.rename(section, 'a', 'x')
      const value = section === 'sites' ? 'Europe/Paris' : 'y'
      const follows = { [section]: [object('x'), valued('k', value)] }
      await back((await settle(follows, prune)).done)
      expect((await settle(old, prune)).lines).toContain('update x a')
      expect(await ids(section)).toEqual(before)
      // What is replaced, and in no file any more.
      await byHand.rename(section, 'a', 'x')
      await back((await settle({ [section]: [object('a', 'k')] })).done)
      expect((await settle(old, prune)).lines).toEqual(['update x a'])
      expect(await ids(section)).toEqual(before)
      // An apply from before a rename is taken back, and the rename stays.
      const early = (await settle({ [section]: [valued('a', value), object('k')] }, prune)).done
      const renamed = { [section]: [object('b', 'a'), object('k')] }
      if (section === 'organizations') return
      await settle(renamed, prune)
      await settle({ [section]: [...renamed[section]!, object('a')] }, prune)
      await back(early)
      expect((await settle({ [section]: [...renamed[section]!, object('a')] }, prune)).lines).toEqual([])
      expect((await ids(section)).get('b')).toBe(before.get('a'))
    })

    it('is exchanged once, also when that is taken back, and that as well', async () => {
      const { acme, settle, back } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const files = { [section]: [object('a', 'b'), object('b', 'a')] }
      const again = await back((await settle(files)).done)
      await back(again)
      expect((await acme.plan(files)).changes).toEqual([])
    })

    it('of what no file calls anything is no other than the one that files call so', async () => {
      const { acme, settle, ids, byHand } = await start()
      await acme.apply({ [section]: [object('a'), object('b')] })
      const before = await ids(section)
      await byHand.rename(section, 'a', 'x')
      const files = { [section]: [object('a', 'b')] }
      expect((await settle(files)).lines).toEqual(['update b a'])
      await byHand.rename(section, 'a', 'q')
      await byHand.rename(section, 'x', 'a')
      await expect(acme.plan(files)).rejects.toMatchObject({
        details: [
          {
            message: `it is called "q" now, and another of ${section} has the name "a": delete or rename one first, or delete "a" with --prune`,
          },
        ],
      })
      expect((await settle(files, prune)).lines).toEqual(['delete a', 'update q a'])
      expect([...(await ids(section))].find(([, id]) => id === before.get('b'))?.[0]).toBe('a')
    })

    it('is as it was after a rollback, and the next plan exchanges it again', async () => {
      const { acme, settle, ids } = await start()
      await acme.apply({ [section]: [object('a'), object('b'), object('c'), object('d')] })
      const before = await ids(section)
      const files = { [section]: [object('a', 'b'), object('b', 'a'), object('d', 'c')] }
      const { done } = await settle(files, prune)
      const params = { id: done.applyId }
      const plan = await acme.client.call(api.configurationApplies.plan, { params, body: {} })
      const body = { version: plan.version }
      await acme.client.call(api.configurationApplies.rollback, { params, body })
      const after = await ids(section)
      expect(['a', 'b', 'c'].map((name) => after.get(name))).toEqual(
        ['a', 'b', 'c'].map((name) => before.get(name)),
      )
      // Made again, in place of what was deleted.
      expect(after.has('d')).toBe(true)
      expect((await settle(files, prune)).lines).toEqual([
        'update b a',
        'update a b',
        'delete d',
        'update c d',
      ])
    })

    it('is not taken from what the set does not own, nor given to two', async () => {
      const { acme } = await start()
      await acme.apply({ [section]: [object('a')] })
      await acme.apply({ [section]: [object('b')] }, { set: 'other' })
      const messages = async (objects: object[], options = {}) => {
        const failure = await acme
          .plan({ [section]: objects as never }, { ...prune, ...options })
          .catch((e) => e)
        return (failure as { details: { message: string }[] }).details.map(({ message }) => message)
      }
      const both = 'both "a" and "b" exist: delete or rename one first'
      expect(await messages([object('b', 'a')])).toEqual([both])
      expect(await messages([object('b', 'a')], { adopt: true })).toEqual([both])
      expect(await messages([object('c', 'a'), object('d', 'a')])).toEqual([
        '"c" is renamed from "a" as well',
      ])
    })
  })

  it('what refers to a name means what files call so, whatever it is called by hand', async () => {
    const { acme, settle, byHand } = await start()
    const files = {
      sites: [{ org: 'bakery', name: 'Shop' }],
      deviceGroups: [{ org: 'bakery', name: 'Tills', type: 'static', site: 'Shop' }],
    }
    await acme.apply(files)
    await byHand.rename('sites', 'Shop', 'Store')
    expect((await settle(files, prune)).lines).toEqual(['update Store Shop'])
  })

  it('is not shared with what the files displace, where names may be equal', async () => {
    const { acme, byHand } = await start()
    const site = (name: string, renamedFrom?: string) => ({ org: 'bakery', name, ...from(renamedFrom) })
    await acme.apply({ sites: [site('a'), site('c')] })
    await byHand.rename('sites', 'a', 'c')
    await expect(acme.plan({ sites: [site('c', 'a')] })).rejects.toMatchObject({
      details: [{ message: expect.stringContaining('both "a" and "c" exist') }],
    })
  })

  it('what refers to a name does not mean what somebody has given it by hand', async () => {
    const { world, acme, settle } = await start()
    const role = (name: string, more: object = {}) => ({ org: 'bakery', name, permissions: [], ...more })
    const files = {
      roles: [role('child', { parent: 'Org Viewer' }), role('mighty', { permissions: ['devices:execute'] })],
    }
    await acme.apply(files)
    const query = { orgId: world.orgs.bakery.id, limit: 100 }
    const roleOf = async (name: string) =>
      (await acme.client.call(api.roles.list, { query })).data.find(
        (one) => one.name === name && !one.isSystem,
      )!
    const { parentRoleId } = await roleOf('child')
    const { id } = await roleOf('mighty')
    await acme.client.call(api.roles.update, { params: { id }, body: { name: 'Org Viewer' } })
    expect((await settle(files, prune)).lines).toEqual(['update Org Viewer mighty'])
    expect((await roleOf('child')).parentRoleId).toBe(parentRoleId)
    // The names of a parent and its child are exchanged.
    const family = { roles: [role('parent'), role('kid', { parent: 'parent' })] }
    await acme.apply(family, { set: 'family' })
    const [parent, kid] = [await roleOf('parent'), await roleOf('kid')]
    for (const [{ id }, name] of [
      [parent, 'x'],
      [kid, 'parent'],
      [parent, 'kid'],
    ] as const)
      await acme.client.call(api.roles.update, { params: { id }, body: { name } })
    expect((await settle(family, { set: 'family', ...prune })).lines).toEqual([
      'update kid parent',
      'update parent kid',
    ])
    expect((await roleOf('kid')).parentRoleId).toBe(parent.id)
  })

  it('what refers to a name means who gets it, and not who had it', async () => {
    const { acme, settle } = await start()
    const role = (name: string, more = {}) => ({ org: 'bakery', name, permissions: [], ...more })
    await acme.apply({ roles: [role('a'), role('b'), role('child', { parent: 'b' })] })
    const roles = [role('c', { renamedFrom: 'b' }), role('b', { renamedFrom: 'a' })]
    const { lines } = await settle({ roles: [...roles, role('child', { parent: 'c' })] })
    expect(lines).toEqual(['update b c', 'update a b'])
    const swapped = [role('b', { renamedFrom: 'c' }), role('c', { renamedFrom: 'b' })]
    const moved = await settle({ roles: [...swapped, role('child', { parent: 'c' })] })
    expect(moved.done.changes).toMatchObject([
      { renamedFrom: 'c', name: 'b' },
      { renamedFrom: 'b', name: 'c' },
      { name: 'child', before: { parent: 'b' }, after: { parent: 'c' } },
    ])
  })

  describe('what is deleted for its name', () => {
    it('is deleted last while something refers to it that another reference is for', async () => {
      const { acme, settle } = await start()
      const role = (name: string, more = {}) => ({
        org: 'bakery',
        name,
        permissions: ['sites:read'],
        ...more,
      })
      const ada = { org: 'bakery', email: 'ada@example.com', name: 'Ada', role: 'new' }
      await acme.apply({ roles: [role('old'), role('new')], memberships: [ada] })
      const files = { roles: [role('new', { renamedFrom: 'old' })], memberships: [ada] }
      const { lines } = await settle(files, prune)
      expect(lines).toEqual(['update old new', 'update ada@example.com', 'delete new'])
    })

    it('is not deleted while something else refers to it', async () => {
      const { world, acme } = await start()
      const site = (name: string, more = {}) => ({ org: 'bakery', name, ...more })
      await acme.apply({ sites: [site('a'), site('b')] })
      const b = (await acme.client.call(api.sites.list, { query: { limit: 100 } })).data.find(
        ({ name }) => name === 'b',
      )!
      const body = { orgId: world.orgs.bakery.id, name: 'By hand', siteId: b.id }
      await acme.client.call(api.deviceGroups.create, { body })
      await expect(acme.plan({ sites: [site('b', { renamedFrom: 'a' })] }, prune)).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('cannot delete "b"') }],
      })
    })

    it('is an organization with what is in it, each under its own name', async () => {
      const { acme, settle } = await start()
      const org = (slug: string, more = {}) => ({ slug, name: slug.toUpperCase(), ...more })
      const site = (at: string) => ({ org: at, name: `Site of ${at}` })
      await acme.apply({ organizations: [org('a'), org('b')], sites: [site('a'), site('b')] })
      const files = {
        organizations: [org('b', { renamedFrom: 'a', name: 'A' })],
        sites: [{ org: 'b', name: 'Site of a' }],
      }
      const { lines, written } = await settle(files, prune)
      expect(lines).toEqual(['update a b', 'delete Site of b', 'delete b'])
      expect(written).toEqual(['update a b', 'delete Site of b', 'delete B'])
    })

    it('counts as every other deletion', async () => {
      const { acme } = await start()
      const site = (name: string, more = {}) => ({ org: 'bakery', name, ...more })
      await acme.apply({ sites: ['a', 'b', 'c', 'd'].map((name) => site(name)) })
      const files = { sites: [site('b', { renamedFrom: 'a' }), site('d', { renamedFrom: 'c' })] }
      const { changes, version } = await acme.plan(files, { prune: true })
      expect(changes.map(({ action, refused }) => [action, refused !== null])).toEqual([
        ['delete', true],
        ['update', false],
        ['delete', true],
        ['update', false],
      ])
      await expect(acme.apply(files, { prune: true }, version)).rejects.toMatchObject({
        details: [{ path: 'body.pruneLimit' }],
      })
    })
  })
})
