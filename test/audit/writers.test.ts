import { expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { ServeProcess } from '../daemon/process.ts'
import { readChain } from '../daemon/request.ts'
import { openMigrated } from '../databases.ts'
import { clientOf, serviceOn } from '../harness.ts'
import { buildWorld } from '../world.ts'

const writers = 64
const changes = 4

/** All writers at once make their changes one after the other, at alternating services. */
async function writeAtOnce(urls: readonly string[], token: string, orgId: string): Promise<void> {
  const clients = urls.map((url) => clientOf(url, token))
  const write = async (writer: number) => {
    for (let n = 0; n < changes; n++) {
      const body = { orgId, name: `${writer}/${n}` }
      await clients[(writer + n) % clients.length]!.call(api.sites.create, { body })
    }
  }
  await Promise.all(Array.from({ length: writers }, (_, writer) => write(writer)))
}

/** One chain without losses, duplicates, gaps or forks, with the entries of each writer in order. */
async function expectOneChain(url: string, token: string, orgId: string): Promise<void> {
  const { verdict, entries } = await readChain(clientOf(url, token), orgId)
  expect(verdict).toMatchObject({ verdict: 'sound', entries: entries.length })
  expect(entries.map(({ seq }) => seq)).toEqual(entries.map((_, n) => n + 1))
  const made = entries.filter(({ resourceName }) => /^\d+\/\d+$/.test(resourceName ?? ''))
  expect(made).toHaveLength(writers * changes)
  for (let writer = 0; writer < writers; writer++) {
    const own = made.filter(({ resourceName }) => resourceName!.startsWith(`${writer}/`))
    expect(own.map(({ resourceName }) => resourceName)).toEqual(
      Array.from({ length: changes }, (_, n) => `${writer}/${n}`),
    )
  }
}

it('64 writers at two services on one Postgres produce one chain, in the order of each writer', async () => {
  const database = await openMigrated('postgres')
  onTestFinished(database.close)
  const first = await serviceOn(database)
  const { orgs, tokens } = await buildWorld(first)
  await first.close()
  const { dataDir, databaseUrl } = database
  const replicas = [new ServeProcess({ dataDir, databaseUrl }), new ServeProcess({ dataDir, databaseUrl })]
  const urls = await Promise.all(replicas.map((one) => one.listening()))
  await writeAtOnce(urls, tokens.bakery, orgs.bakery.id)
  for (const url of urls) await expectOneChain(url, tokens.bakery, orgs.bakery.id)
  const ended = await Promise.all(replicas.map((one) => one.stop()))
  expect(ended.map(({ code }) => code)).toEqual([0, 0])
})

it('64 writers at one service on SQLite produce one chain, in the order of each writer', async () => {
  const service = await serviceOn(await openMigrated('sqlite'))
  const { orgs, tokens } = await buildWorld(service)
  await writeAtOnce([service.url], tokens.bakery, orgs.bakery.id)
  await expectOneChain(service.url, tokens.bakery, orgs.bakery.id)
})
