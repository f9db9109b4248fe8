import { expressionBuilder } from 'kysely'
import { expect, test } from 'vitest'
import { deviceMatches } from '../../src/filters/compile.ts'
import { ConditionGroup, fields } from '../../src/filters/contract.ts'
import { findFaults } from '../../src/filters/rules.ts'
import type { Storage } from '../../src/storage/open.ts'
import type { Tables } from '../../src/storage/schema/tables.ts'
import { openMigrated } from '../databases.ts'
import { depth, seed } from '../depth.ts'
import { matches } from './evaluator.ts'
import { addPlaces, type Machine, now, randomFleet, replaceFleet } from './fleet.ts'
import { randomFrom } from './random.ts'
import { randomTree } from './trees.ts'

const rounds = depth(5, 12)
const treesInRound = 500
const treesInQuery = 25
const devicesInFleet = 30

/** The devices that each tree matches, with several trees per query. */
async function matchesIn({ read }: Storage, trees: readonly ConditionGroup[]): Promise<Set<string>[]> {
  const eb = expressionBuilder<Tables, 'devices'>()
  const columns = trees.map((tree, i) =>
    eb
      .case()
      .when(deviceMatches(tree, { now }) as never)
      .then(1)
      .else(0)
      .end()
      .as(`t${i}`),
  )
  const rows = await read
    .selectFrom('devices')
    .select(['id', ...columns])
    .execute()
  return trees.map((_, i) => {
    const found = rows.filter((row) => (row as Record<string, unknown>)[`t${i}`] === 1)
    return new Set(found.map(({ id }) => id))
  })
}

/** The smallest part of a tree on which a database still differs from the evaluator. */
async function shrunk(storage: Storage, tree: ConditionGroup, device: Machine): Promise<ConditionGroup> {
  const parts = tree.conditions.map(
    (node): ConditionGroup => ('conditions' in node ? node : { operator: 'AND', conditions: [node] }),
  )
  if (tree.conditions.length === 1 && !('conditions' in tree.conditions[0]!)) return tree
  for (const part of parts) {
    const [found] = await matchesIn(storage, [part])
    if (found!.has(device.id) !== matches(part, device)) return shrunk(storage, part, device)
  }
  return tree
}

test('a filter matches the same devices on SQLite, on Postgres and by its definition', async () => {
  console.log(`SEED=${seed}: ${rounds * treesInRound} trees`)
  const random = randomFrom(seed)
  const databases = { sqlite: await openMigrated('sqlite'), postgres: await openMigrated('postgres') }
  // Both databases have the same IDs, so the fleets are equal.
  const places = await addPlaces(databases.sqlite.storage)
  await addPlaces(databases.postgres.storage, places)
  const asked = new Set<string>()
  let matched = 0
  for (let round = 0; round < rounds; round += 1) {
    const fleet = randomFleet(random, devicesInFleet, places)
    for (const { storage } of Object.values(databases)) await replaceFleet(storage, fleet)
    const trees = Array.from({ length: treesInRound }, () => randomTree(random, places))
    for (const tree of trees) {
      expect(ConditionGroup.parse(tree)).toEqual(tree)
      expect([tree, findFaults(tree, '')]).toEqual([tree, []])
      note(tree, asked)
    }
    for (let at = 0; at < trees.length; at += treesInQuery) {
      const some = trees.slice(at, at + treesInQuery)
      for (const [name, { storage }] of Object.entries(databases)) {
        const found = await matchesIn(storage, some)
        for (const [i, tree] of some.entries()) {
          for (const device of fleet) {
            const wanted = matches(tree, device)
            if (wanted) matched += 1
            if (found[i]!.has(device.id) === wanted) continue
            const min = JSON.stringify(await shrunk(storage, tree, device))
            const what = `${name} ${wanted ? 'misses' : 'wrongly finds'} the device`
            expect.fail(`${what}\nSEED=${seed}\n${min}\n${JSON.stringify(device, null, 1)}`)
          }
        }
      }
    }
  }
  const every = fields.flatMap(({ key, operators }) => operators.map((operator) => `${key} ${operator}`))
  expect(every.filter((pair) => !asked.has(pair))).toEqual([])
  // Filters must match some devices, not all or none, for the agreement to mean anything.
  const share = matched / (2 * rounds * treesInRound * devicesInFleet)
  expect(share).toBeGreaterThan(0.1)
  expect(share).toBeLessThan(0.9)
  for (const database of Object.values(databases)) await database.close()
})

function note(tree: ConditionGroup, asked: Set<string>): void {
  for (const node of tree.conditions) {
    if ('conditions' in node) note(node, asked)
    else asked.add(`${node.field.replace(/^custom\..*/, 'custom.<key>')} ${node.operator}`)
  }
}
