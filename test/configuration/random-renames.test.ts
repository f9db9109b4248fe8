import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { onEveryDatabase } from '../databases.ts'
import { depth } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import '../random.ts'
import { buildWorld, newToken } from '../world.ts'
import { configurationOf, type Document } from './fixture.ts'

const names = ['a', 'b', 'c', 'd', 'e']
/** Names in one organization, and slugs, which the database keeps apart. */
const sections = ['roles', 'organizations'] as const
type Section = (typeof sections)[number]

type Existing = {
  id: string
  isOwn: boolean
  /** What the files of its set call it, and what they called it before. */
  nameInFiles: string | null
  renamedFrom: string | null
}
/** What is to have a name: what has it or another one, or a new one. `isSaid`: the files say that it has another. */
type Intent = ReadonlyMap<string, { from: string | null; isSaid: boolean }>

const wish = fc.record({
  picks: fc.array(fc.nat(9), { minLength: names.length, maxLength: names.length }),
  values: fc.array(fc.constantFrom('red', 'green'), {
    minLength: names.length,
    maxLength: names.length,
  }),
})

/** Objects by what files call them: those of the set as they were called last, whatever they are called now. */
function calledIn(present: ReadonlyMap<string, Existing>): Map<string, Existing> {
  const own = [...present].filter(([, { isOwn }]) => isOwn)
  const called = new Map(own.map(([name, one]) => [one.nameInFiles ?? name, one]))
  for (const [name, one] of present) if (!one.isOwn && !called.has(name)) called.set(name, one)
  return called
}

/**
 * What files ask for that say of each name nothing, itself, or another's. Left out is what means something else: who gets the
 * name of what is deleted has to be the set's as that is, the former name is no other object's of the files, and what was
 * renamed from it before is not renamed again.
 */
function intentOf(picks: readonly number[], present: ReadonlyMap<string, Existing>): Intent {
  const called = calledIn(present)
  const sources = new Map<string, string>()
  for (const [at, name] of names.entries()) {
    const other = names[(at + picks[at]!) % names.length]!
    const isTaken = [...sources.values()].includes(other)
    if (picks[at]! > 4 && other !== name && called.has(other) && !isTaken) sources.set(name, other)
  }
  const kept = new Set(names.filter((_, at) => picks[at]! > 1))
  for (;;) {
    const taken = new Set(sources.values())
    /** Who has the name keeps it, or is deleted, and not both are the set's. */
    const isHeld = (name: string, other: string) => {
      const holder = present.get(name)
      const usual = holder?.nameInFiles ?? name
      if (!holder || taken.has(usual) || (usual !== name && kept.has(usual))) return false
      return !holder.isOwn || !called.get(other)!.isOwn
    }
    const wrong = [...sources].find(([name, other]) => {
      const isKept = kept.has(other) && !sources.has(other)
      const isDone = called.get(name)?.renamedFrom === other
      return isHeld(name, other) || isKept || isDone
    })
    if (!wrong) break
    sources.delete(wrong[0])
    kept.add(wrong[0])
  }
  const taken = new Set(sources.values())
  const isSaid = (name: string) => kept.has(name) || sources.has(name) || taken.has(name)
  /** What was renamed by hand, and has its former name in no file any more. */
  const followed = (name: string): string | null => {
    const { isOwn = false, nameInFiles = null } = present.get(name) ?? {}
    return isOwn && nameInFiles !== null && !isSaid(nameInFiles) ? nameInFiles : null
  }
  return new Map(
    names.flatMap((name): [string, { from: string | null; isSaid: boolean }][] => {
      const source = sources.get(name)
      if (source !== undefined) return [[name, { from: source, isSaid: true }]]
      if (!kept.has(name)) return []
      if (!called.has(name)) return [[name, { from: followed(name), isSaid: false }]]
      return [[name, { from: taken.has(name) ? null : name, isSaid: false }]]
    }),
  )
}

onEveryDatabase((kind, open) => {
  let service: TestService
  let token: string
  let bakery: string
  beforeAll(async () => {
    service = await startService(open)
    const world = await buildWorld(service)
    token = world.tokens.acme
    bakery = world.orgs.bakery.id
  })
  afterAll(async () => service.close())

  describe('files that rename objects', () => {
    const options = { set: 'renames', adopt: true, prune: true, pruneLimit: 1000 }

    it('give each name to what they say, as their plan and the audit log say, and then ask for nothing', {
      timeout: 7_200_000,
    }, async () => {
      let acme = configurationOf(service)(token)
      let { client } = acme
      const existing = async (section: Section): Promise<Map<string, Existing>> => {
        const query = { limit: 100 }
        const all =
          section === 'roles'
            ? (await client.call(api.roles.list, { query: { ...query, orgId: bakery } })).data
            : (await client.call(api.orgs.page, { query })).data
        const named = all.map((one) => ['slug' in one ? one.slug : one.name, one.id] as const)
        const rows = await service.storage.read
          .selectFrom('config_objects')
          .select(['object_id', 'name', 'renamed_from'])
          .execute()
        const owned = new Map(rows.map((row) => [row.object_id, row]))
        return new Map(
          named
            .filter(([name]) => names.includes(name))
            .map(([name, id]) => {
              const { name: nameInFiles = null, renamed_from: renamedFrom = null } = owned.get(id) ?? {}
              const about = { isOwn: owned.has(id), nameInFiles, renamedFrom }
              return [name, { id, ...about }] as const
            }),
        )
      }
      const makeByHand = (section: Section, name: string) =>
        section === 'roles'
          ? client.call(api.roles.create, { body: { orgId: bakery, name, permissions: [] } })
          : client.call(api.orgs.create, { body: { slug: name, name: 'x' } })
      const changeByHand = async (section: Section, id: string, value: string) => {
        const params = { id }
        if (section === 'roles') await client.call(api.roles.update, { params, body: { description: value } })
        else await client.call(api.orgs.update, { params, body: { settings: { value } } })
      }
      const renameByHand = async (section: Section, id: string, name: string) => {
        const params = { id }
        if (section === 'roles') await client.call(api.roles.update, { params, body: { name } })
        else await client.call(api.orgs.update, { params, body: { slug: name } })
      }
      const removeByHand = (section: Section, id: string) =>
        client.call(section === 'roles' ? api.roles.remove : api.orgs.remove, { params: { id } })

      const property = fc.asyncProperty(
        fc.record({ roles: wish, organizations: wish }),
        fc.record({
          parent: fc.nat(9),
          section: fc.constantFrom(...sections),
          name: fc.constantFrom(...names),
        }),
        fc.constantFrom('nothing', 'make', 'change', 'rename', 'exchange', 'remove'),
        fc.boolean(),
        fc.nat(1_000_000),
        async (wishes, picked, hand, isRolledBack, number) => {
          // A token lasts a quarter of an hour, and the soak longer.
          acme = configurationOf(service)(await newToken(token))
          client = acme.client
          /** Files, and ids that the names have afterwards; null: a new one. */
          const asked = async () => {
            const document: Document = {}
            const wanted = new Map<string, string | null>()
            for (const section of sections) {
              const present = await existing(section)
              const { picks, values } = wishes[section]
              const intent = intentOf(picks, present)
              const called = calledIn(present)
              document[section] = [...intent].map(([name, { from, isSaid }]) => {
                wanted.set(`${section} ${name}`, from === null ? null : called.get(from)!.id)
                // What was renamed before may go on to say so.
                const former = from === name ? called.get(name)!.renamedFrom : isSaid ? from : null
                const renamedFrom = former === null ? {} : { renamedFrom: former }
                const value = values[names.indexOf(name)]!
                return section === 'roles'
                  ? { org: 'bakery', name, description: value, ...renamedFrom }
                  : { slug: name, name: value, ...renamedFrom }
              })
            }
            const parents = document.roles!.map(({ name }) => name)
            const parent = parents[picked.parent] ?? null
            document.roles!.push({ org: 'bakery', name: 'child', parent })
            return { document, wanted }
          }
          const { section, name } = picked
          let { document, wanted } = await asked()
          const early = await acme.plan(document, options)
          const taken = await existing(section)
          const there = taken.get(name)
          const isFree = (one: string) => !taken.has(one) && !calledIn(taken).has(one)
          const free = names.find(isFree)
          const other = [...taken].find(([one, { isOwn }]) => isOwn && one !== name)
          const isMoved =
            hand === 'make'
              ? isFree(name)
              : hand === 'rename'
                ? there !== undefined && free !== undefined
                : hand === 'exchange'
                  ? there?.isOwn === true && other !== undefined
                  : there !== undefined && hand !== 'nothing'
          if (isMoved) {
            if (hand === 'make') await makeByHand(section, name)
            else if (hand === 'change') await changeByHand(section, there!.id, String(number))
            else if (hand === 'rename') await renameByHand(section, there!.id, free!)
            else if (hand === 'exchange') {
              await renameByHand(section, there!.id, 'aside')
              await renameByHand(section, other![1].id, name)
              await renameByHand(section, there!.id, other![0])
            }
            // A role that is a parent stays.
            else
              await removeByHand(section, there!.id).catch(() =>
                changeByHand(section, there!.id, `${number}`),
              )
            const late = acme.apply(document, options, early.version)
            await expect(late).rejects.toMatchObject({ status: 409, code: 'conflict' })
            ;({ document, wanted } = await asked())
          }
          const before = (await acme.exported()).document
          const present = new Map<string, Existing>()
          for (const section of sections)
            for (const [name, one] of await existing(section)) present.set(`${section} ${name}`, one)
          const planned = await acme.plan(document, options)
          expect((await acme.exported()).document).toEqual(before)
          const news = await newEntries(service)
          const done = await acme.apply(document, options)
          const said = ({ section, action, name, renamedFrom }: (typeof done.changes)[number]) =>
            `${section} ${action} ${renamedFrom ?? name} ${name}`
          expect(done.changes.map(said)).toEqual(planned.changes.map(said))

          const entries = (await news()).filter(({ action }) => action !== 'config.apply')
          expect(entries.map(({ action }) => action)).toEqual(
            done.changes.map(({ section, action }) =>
              action === 'adopt' ? 'config.adopt' : `${resources[section]}.${action}`,
            ),
          )
          for (const [at, { details }] of entries.entries()) {
            const { name, renamedFrom, section } = done.changes[at]!
            if (renamedFrom === null) continue
            const key = section === 'organizations' ? 'slug' : 'name'
            expect(details).toMatchObject({ before: { [key]: renamedFrom }, after: { [key]: name } })
          }
          expect(JSON.stringify(entries)).not.toMatch(/aside [0-9a-f]{8}-/)

          const known = new Set([...present.values()].map(({ id }) => id))
          const unclaimed = [...present].filter(
            ([, { id, isOwn }]) => !isOwn && ![...wanted.values()].includes(id),
          )
          const after = new Map<string, string>()
          for (const section of sections)
            for (const [name, { id }] of await existing(section)) after.set(`${section} ${name}`, id)
          expect([...after.keys()].sort()).toEqual(
            [...new Set([...wanted.keys(), ...unclaimed.map(([place]) => place)])].sort(),
          )
          for (const [place, id] of wanted) {
            if (id === null) expect(known.has(after.get(place)!)).toBe(false)
            else expect([place, after.get(place)]).toEqual([place, id])
          }
          expect((await acme.plan(document, options)).changes).toEqual([])
          if (!isRolledBack || done.changes.length === 0) return

          const params = { id: done.applyId }
          const pruning = { prune: true, pruneLimit: 1000 }
          const { version } = await client.call(api.configurationApplies.plan, { params, body: pruning })
          await client.call(api.configurationApplies.rollback, { params, body: { ...pruning, version } })
          expect((await acme.exported()).document).toEqual(before)
        },
      )
      await fc.assert(property, { numRuns: depth(kind === 'sqlite' ? 25 : 5, 3000), endOnFailure: true })
    })
  })
})

/** What the actions of the audit log begin with. */
const resources: Record<string, string> = {
  organizations: 'organization',
  roles: 'role',
}
