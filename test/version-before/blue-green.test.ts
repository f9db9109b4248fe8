import { readFile } from 'node:fs/promises'
import { sql } from 'kysely'
import semverMajor from 'semver/functions/major.js'
import { describe, expect, it } from 'vitest'
import { migrations } from '../../migrations/index.ts'
import { migrate } from '../../src/storage/migrate.ts'
import type { Storage } from '../../src/storage/open.ts'
import { testCertificate } from '../cli/network.ts'
import { emptyPlace, type Place, withStorage } from '../daemon/backup/filled.ts'
import { failedStart, ServeProcess, serviceEnv, until } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { sourcesWith } from '../storage/migration-files.ts'
import { receiver } from '../webhooks/receiver.ts'
import { fill, heartbeat, type Installation, use, verify } from './installation.ts'
import { about, programBefore } from './version-before.ts'

/*
 * The real program of the version before and this one, on one database: the upgrade of svc-serve(8) and the way back.
 */

const certificate = testCertificate()

const env = () => ({
  ...serviceEnv,
  ENABLE_2FA: 'false',
  OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
  OUTBOUND_CA_FILE: certificate.file,
})
const startBefore = async (place: Place) =>
  new ServeProcess(place, { env: env(), program: await programBefore() })
const startNow = (place: Place) => new ServeProcess(place, { env: env() })
const appliedIn = async (storage: Storage) => {
  const { rows } = await sql<{ name: string }>`select name from svc_migrations order by name`.execute(
    storage.read,
  )
  return rows.map(({ name }) => name)
}
const ended = { code: 0, signal: null }

/** Heartbeats of the agents, one after the other, until it is ended. */
function beating(url: string, { agents }: Installation): () => Promise<number> {
  let count = 0
  let isEnding = false
  const done = (async () => {
    for (; !isEnding && count < 20_000; count++) await heartbeat(url, agents[count % agents.length]!)
  })()
  return async () => {
    isEnding = true
    await done
    return count
  }
}

it('the version before is another one, with packages that work like the installed ones', async () => {
  expect(about.commit).toMatch(/^[0-9a-f]{40}$/)
  const installed = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8'))
  for (const [name, version] of Object.entries(about.dependencies)) {
    const own = installed.dependencies[name] ?? installed.devDependencies[name]
    // A package that is gone or has changed its interface: pack a later version (make.js).
    expect([name, own && semverMajor(own)]).toEqual([name, semverMajor(version)])
  }
  const place = await emptyPlace('sqlite')
  await (await startBefore(place)).listening()
  const applied = await withStorage(place, appliedIn)
  expect(migrations.map(({ name }) => name)).toEqual(expect.arrayContaining(applied))
  expect(migrations.length).toBeGreaterThan(applied.length)
})

describe('an upgrade from the version before', () => {
  it('on Postgres answers all requests: both versions serve while the new one migrates, and back', {
    timeout: 180_000,
  }, async () => {
    const database = await emptyPlace('postgres')
    const place = async () => ({ ...database, dataDir: await temporaryFolder() })
    const to = await receiver(certificate)

    const old = await startBefore(await place())
    const oldUrl = await old.listening()
    const made = await fill(oldUrl, to)
    await use(oldUrl, made, 'before')

    const stopBeating = beating(oldUrl, made)
    const next = startNow(await place())
    const nextUrl = await next.listening()
    expect(await withStorage(database, appliedIn)).toEqual(migrations.map(({ name }) => name))
    expect(await stopBeating()).toBeGreaterThan(0)
    await use(nextUrl, made, 'new-beside-old', [oldUrl])
    await use(oldUrl, made, 'old-beside-new', [nextUrl])
    await Promise.all([use(oldUrl, made, 'both-old'), use(nextUrl, made, 'both-new')])
    for (const url of [oldUrl, nextUrl]) await verify(url, made, 'both-old')

    expect(await old.stop()).toEqual(ended)
    await use(nextUrl, made, 'new-alone')

    const again = await startBefore(await place())
    const againUrl = await again.listening()
    await use(againUrl, made, 'back-beside-new', [nextUrl])
    expect(await next.stop()).toEqual(ended)
    await use(againUrl, made, 'back-alone')
    expect(again.stderr).toContain('which this version can work with')
    expect(await again.stop()).toEqual(ended)
    expect(new Set(to.ids()).size).toBe(to.got.length)
  })

  it('on SQLite goes on where the other one stopped, and back', async () => {
    const place = await emptyPlace('sqlite')
    const to = await receiver(certificate)
    let made: Installation | undefined
    for (const [name, start] of [
      ['before', startBefore],
      ['new', startNow],
      ['back', startBefore],
      ['new-again', startNow],
    ] as const) {
      const service = await start(place)
      const url = await service.listening()
      made ??= await fill(url, to)
      await use(url, made, name)
      expect(await service.stop()).toEqual(ended)
    }
    expect(new Set(to.ids()).size).toBe(to.got.length)
  })
})

describe.each(['sqlite', 'postgres'] as const)('on %s', (kind) => {
  it.each(['devices.pending_reboot', 'sites.contact'])(
    'a migration that takes %s from the version before is caught',
    async (column) => {
      const [table, name] = column.split('.')
      const place = await emptyPlace(kind)
      const to = await receiver(certificate)
      const old = await startBefore(place)
      const made = await fill(await old.listening(), to)
      await old.stop()
      await withStorage(place, async (storage) => {
        await migrate(storage, migrations)
        await storage.write((tx) => sql.raw(`alter table ${table} drop column ${name}`).execute(tx))
      })
      const again = await startBefore(place)
      const url = await again.listening()
      await expect(use(url, made, 'broken')).rejects.toThrow()
      await until(() => new RegExp(`column.*${name}`).test(again.stderr))
    },
  )

  it('the version before refuses a schema that needs a later one, and names it', async () => {
    const place = await emptyPlace(kind)
    const dropping = { name: '9999_dropping', up: async () => {}, oldestVersion: '99.0.0' }
    await withStorage(place, async (storage) => {
      const list = [...migrations, dropping]
      await migrate(storage, list, { ...(await sourcesWith(list)), version: '99.0.0' })
    })
    const { code, stderr } = await failedStart(place, { env: env(), program: await programBefore() })
    expect(code).toBe(1)
    expect(stderr).toContain(
      `The database needs svc 99.0.0 or later since the migration 9999_dropping, and this is svc ${about.version}`,
    )
  })
})
