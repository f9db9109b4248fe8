import { it as always, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { type ServiceOptions, startService } from '../harness.ts'
import { unsent } from '../identity/mail.ts'
import { newEntries } from '../laws/audited.ts'
import { changed, dump } from '../laws/tables.ts'
import { addOrgUser, addRole, buildWorld } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

onEveryDatabase((kind, open) => {
  const start = async (options: ServiceOptions = {}) => {
    const service = await startService(open, { outside: { mailer: unsent(false) }, ...options })
    const world = await buildWorld(service)
    const by = configurationOf(service)
    const mails = async () => (await service.storage.read.selectFrom('mails').select('id').execute()).length
    const acme = by(world.tokens.acme)
    const members = async (email: string) =>
      (await acme.client.call(api.users.list, { query: { orgId: world.orgs.bakery.id } })).data.filter(
        (one) => one.email === email,
      )
    return { service, world, by, mails, members, acme, bakery: by(world.tokens.bakery) }
  }

  const ada = { email: 'ada@example.com', name: 'Ada', role: 'Org Viewer' }
  const files = {
    sites: [
      { org: 'bakery', name: 'Annex' },
      { org: 'bakery', name: 'Mill' },
    ],
    deviceGroups: [{ org: 'bakery', name: 'Tills' }],
    roles: [{ org: 'bakery', name: 'Night', permissions: ['devices:read'] }],
    memberships: [
      { org: 'bakery', ...ada, role: 'Night', sites: ['Annex', 'Mill'], deviceGroups: ['Tills'] },
      {
        email: 'Grace@example.com',
        name: 'Grace',
        role: 'Partner Viewer',
        orgAccess: 'selected',
        orgs: ['bakery'],
      },
    ],
  } satisfies Document

  describe('memberships in files', () => {
    it('are invitations with a role and a reach, each with a letter after the commit', async () => {
      const { service, mails, members, acme } = await start()
      const before = await dump(service.storage)
      const plan = await acme.plan(files)
      expect(plan.changes.filter(({ section }) => section === 'memberships')).toMatchObject([
        { action: 'create', org: 'bakery', name: 'ada@example.com', id: null, refused: null },
        { action: 'create', org: null, name: 'grace@example.com' },
      ])
      expect(changed(before, await dump(service.storage))).toEqual([])
      const letters = await mails()
      const news = await newEntries(service)
      const done = await acme.apply(files)
      expect(done.changes).toEqual(plan.changes)
      expect(await mails()).toBe(letters + 2)
      const [made] = await members('ada@example.com')
      expect(made).toMatchObject({ status: 'invited', roleName: 'Night', name: 'Ada' })
      expect(made!.siteIds).toHaveLength(2)
      expect(made!.deviceGroupIds).toHaveLength(1)
      const invited = (await news()).filter(({ action }) => action === 'user.invite')
      expect(invited.map(({ resourceName }) => resourceName)).toEqual([
        'ada@example.com',
        'grace@example.com',
      ])
      expect(invited[0]!.details).toMatchObject({ configuration: { applyId: done.applyId } })
      // An invitation that waits is what the file asks for.
      expect((await acme.plan(files)).changes).toEqual([])
      expect(await mails()).toBe(letters + 2)
    })

    it('change by role and by reach, as single calls do, and end without the account', async () => {
      const { service, members, acme } = await start()
      await acme.apply(files)
      const [{ id } = { id: '' }] = await members('ada@example.com')
      const news = await newEntries(service)
      const other = { org: 'bakery', ...ada, name: 'Somebody', sites: ['Mill'], deviceGroups: null }
      const memberships = [other, files.memberships[1]!]
      const { changes } = await acme.apply({ memberships })
      expect(changes).toMatchObject([
        {
          action: 'update',
          id,
          before: { sites: ['Annex', 'Mill'], deviceGroups: ['Tills'] },
          after: { sites: ['Mill'], deviceGroups: null },
        },
        { action: 'update', id, before: { role: 'Night' }, after: { role: 'Org Viewer' } },
      ])
      expect(await members('ada@example.com')).toMatchObject([
        { name: 'Ada', roleName: 'Org Viewer', deviceGroupIds: null },
      ])
      expect((await acme.plan({ memberships })).changes).toEqual([])
      const gone = await acme.apply({ memberships: [files.memberships[1]!] }, { prune: true })
      expect(gone.changes).toMatchObject([{ action: 'delete', id, name: 'ada@example.com' }])
      expect(await members('ada@example.com')).toEqual([])
      const account = await service.storage.read
        .selectFrom('users')
        .select('email')
        .where('id', '=', id)
        .execute()
      expect(account).toHaveLength(1)
      const entries = (await news()).filter(({ action }) => action !== 'config.apply')
      expect(entries.map(({ action, resourceId }) => [action, resourceId])).toEqual([
        ['user.access.update', id],
        ['user.role.assign', id],
        ['user.remove', id],
      ])
    })

    it('are exported and taken over, also by who is among them', async () => {
      const { acme } = await start()
      const { document, skipped } = await acme.exported()
      expect(skipped).toEqual([])
      expect(document.memberships!.length).toBeGreaterThan(2)
      const { changes } = await acme.apply(document, { adopt: true })
      expect(changes.filter(({ action }) => action !== 'adopt')).toEqual([])
      expect(changes.filter(({ refused }) => refused !== null)).toEqual([])
      expect((await acme.plan(document)).changes).toEqual([])
      // Their own access is not theirs to change.
      const own = document.memberships!.filter(({ org }) => org === undefined)
      const less = own.map((one) => ({ ...one, role: 'Partner Viewer' }))
      const { changes: refused } = await acme.plan({ memberships: less })
      expect(refused.map((change) => change.refused)).toContain('Self role assignment is not allowed')
    })

    it('name what there is in their organization, and all faults at once', async () => {
      const { acme } = await start()
      const wrong = {
        memberships: [
          { org: 'bakery', ...ada, email: 'a@example.com', role: 'Nobody' },
          { org: 'bakery', ...ada, email: 'b@example.com', sites: ['garage site'] },
          { org: 'bakery', ...ada, email: 'c@example.com', orgAccess: 'all' },
          { org: 'bakery', ...ada, email: 'no address' },
          { org: 'bakery', email: 'd@example.com' },
          { org: 'bakery', ...ada },
          { org: 'bakery', ...ada, email: 'ADA@example.com' },
        ],
      }
      const failure = await acme.plan(wrong).catch((error: unknown) => error)
      expect(failure).toMatchObject({ status: 400 })
      const paths = (failure as { details: { path: string }[] }).details.map(({ path }) =>
        path.replace('body.document.memberships.', ''),
      )
      expect([...new Set(paths)]).toEqual(
        expect.arrayContaining([
          '0.role',
          '1.sites.0',
          '2.orgAccess',
          '3.email',
          '4.name',
          '4.role',
          '6.email',
        ]),
      )
    })

    it('give nobody more than their applier has', async () => {
      const { service, world, by } = await start()
      const { id } = world.orgs.bakery
      const held = [
        'config:read',
        'config:apply',
        'users:read',
        'users:write',
        'users:invite',
        'users:delete',
      ]
      const role = await addRole(service, id, 'Applier', held)
      const applier = by(await addOrgUser(service, 'applier', id, { role }))
      const mighty = { memberships: [{ ...ada, role: 'Org Admin' }] }
      expect((await applier.plan(mighty)).changes).toMatchObject([{ refused: expect.any(String) }])
      await expect(applier.apply(mighty)).rejects.toMatchObject({ status: 403 })
      const reader = await addRole(service, id, 'Reader', ['config:read', 'users:read'])
      const planner = by(await addOrgUser(service, 'planner', id, { role: reader }))
      expect((await planner.plan({ memberships: [ada] })).changes).toMatchObject([
        { action: 'create', refused: expect.any(String) },
      ])
      // Of somebody with more rights nothing is taken over.
      const { document } = await by(world.tokens.bakery).exported()
      const admins = document.memberships!.filter((one) => one.role === 'Org Admin')
      expect(admins.length).toBeGreaterThan(0)
      const taken = await applier.plan({ memberships: admins }, { adopt: true })
      expect(taken.changes.every(({ refused }) => refused !== null)).toBe(true)
    })

    it('count as letters when they are applied, and an apply that sends none counts none', async () => {
      const { mails, bakery } = await start({ env: { RATE_LIMIT_INVITE_INVITER: '2/3600' } })
      const people = (count: number) => ({
        memberships: Array.from({ length: count }, (_, n) => ({ ...ada, email: `p${n}@example.com` })),
      })
      const letters = await mails()
      for (const _ of [1, 2]) await bakery.plan(people(2))
      await expect(bakery.apply(people(3))).rejects.toMatchObject({ status: 429, code: 'rate_limited' })
      expect(await mails()).toBe(letters)
      await bakery.apply(people(2))
      expect(await mails()).toBe(letters + 2)
      await expect(bakery.apply(people(3))).rejects.toMatchObject({ status: 429 })
      expect(await mails()).toBe(letters + 2)
    })

    it('are the same for every spelling of an address', async () => {
      const { members, acme } = await start()
      // Full-width letters, and capital ones.
      const spelled = { org: 'bakery', ...ada, email: 'ＡＤＡ@Example.com' }
      expect((await acme.apply({ memberships: [spelled] })).changes).toMatchObject([
        { action: 'create', name: 'ada@example.com' },
      ])
      expect(await members(ada.email)).toHaveLength(1)
      for (const email of [spelled.email, ada.email, 'Ada@EXAMPLE.com'])
        expect((await acme.plan({ memberships: [{ ...spelled, email }] })).changes).toEqual([])
      const twice = acme.plan({ memberships: [spelled, { ...spelled, email: ada.email }] })
      await expect(twice).rejects.toMatchObject({
        details: [{ message: '"ada@example.com" occurs twice' }, {}],
      })
    })

    it('leave the links of other tenants alone, and unlocked, while they are planned', async () => {
      const { service, world, by, acme } = await start()
      const others = by(world.tokens.globex)
      const member = { email: ada.email, name: ada.name, role: 'Partner Viewer', orgAccess: 'all' }
      await others.apply({ memberships: [member] })
      const links = async () =>
        (await service.storage.read.selectFrom('invitations').select('tenant_id').execute()).map(
          ({ tenant_id }) => tenant_id,
        )
      const { globex } = world.partners
      const document = { memberships: [{ org: 'bakery', ...ada }] }
      const plan = () => acme.plan(document)
      // SQLite has one writer, which a plan waits for.
      if (kind === 'postgres')
        await service.storage.write(async (tx) => {
          const moved = { expires_at: '2999-01-01T00:00:00.000Z' }
          await tx.updateTable('invitations').set(moved).where('tenant_id', '=', globex).execute()
          await plan()
        })
      else await plan()
      expect(await links()).toEqual([globex])
      await acme.apply(document)
      expect(await links()).toEqual([world.orgs.bakery.id])
    })

    it('end with their organization, whose last administrator cannot be removed', async () => {
      const { service, acme } = await start()
      const organizations = [{ slug: 'florist', name: 'Florist' }]
      const boss = { org: 'florist', email: 'boss@example.com', name: 'Boss', role: 'Org Admin' }
      await acme.apply({ organizations, memberships: [boss] })
      await service.storage.write((tx) =>
        tx
          .updateTable('organization_memberships')
          .set({ accepted_at: '2026-01-01T00:00:00.000Z', accepted_by: 'holder' })
          .where('invited_email', '=', 'boss@example.com')
          .execute(),
      )
      await service.storage.write((tx) =>
        tx.updateTable('users').set({ status: 'active' }).where('email', '=', 'boss@example.com').execute(),
      )
      await expect(acme.plan({ memberships: [] }, { prune: true })).rejects.toMatchObject({
        details: [{ message: expect.stringContaining('last full administrator') }],
      })
      const all = { organizations: [], memberships: [] }
      expect((await acme.apply(all, { prune: true })).changes).toMatchObject([
        { action: 'delete', section: 'organizations', name: 'florist' },
      ])
      expect(await acme.sets()).toEqual([])
    })

    always('are not renamed, in whatever spelling the former address is', async () => {
      const { acme } = await start()
      await acme.apply({ memberships: [{ org: 'bakery', ...ada }] })
      const other = { org: 'bakery', ...ada, email: 'grace@example.com' }
      for (const renamedFrom of [ada.email, 'ADA@example.com', 'ＡＤＡ@Example.com'])
        for (const prune of [false, true])
          await expect(
            acme.plan({ memberships: [{ ...other, renamedFrom }] }, { prune }),
          ).rejects.toMatchObject({
            details: [
              {
                path: 'body.document.memberships.0.email',
                message: 'cannot be changed: delete it and create another',
              },
            ],
          })
      const same = { org: 'bakery', ...ada, renamedFrom: 'ADA@example.com' }
      expect((await acme.plan({ memberships: [same] })).changes).toEqual([])
    })
  })
})
