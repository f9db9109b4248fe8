import { hash } from 'node:crypto'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { encryptedColumns } from '../../src/core/encrypted-columns.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { encryptionContext, findUnreadable } from '../../src/storage/encrypted-values.ts'
import type { Storage } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried } from '../depth.ts'
import { startService, type TestService, testSecrets } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { toWire } from './calls.ts'
import { hashedColumns, unlisted } from './encrypted-columns.ts'
import { mutating } from './fields.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { schemaOf } from './schema.ts'
import { Line } from './wire.ts'

const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
const digestOf = (text: string) => hash('sha256', text, 'hex')

/** Shorter ones may be part of another text by chance. */
const minSecret = 12

/** What the encrypted columns hold, opened. */
async function openedIn({ read }: Storage): Promise<string[]> {
  const found: string[] = []
  for (const one of encryptedColumns) {
    const rows = await (read as AnyDb)
      .selectFrom(one.table)
      .select([one.column, ...one.row])
      .where(one.column, '<>', '')
      .execute()
    for (const row of rows as Record<string, string>[])
      found.push(cipher.decrypt(row[one.column]!, encryptionContext(one, row)))
  }
  // Of the URL of a webhook only the query is secret: the rest is shown and audited.
  const isShown = (text: string): boolean => URL.canParse(text) && !text.includes('?')
  return found.filter((text) => text.length >= minSecret && !isShown(text))
}

/** The columns that hold one of these texts. */
async function placesIn(storage: Storage, texts: readonly string[]): Promise<string[]> {
  const places: string[] = []
  for (const [table, { columns }] of Object.entries(await schemaOf(storage))) {
    const names = columns.filter(({ kind }) => kind === 'text').map(({ name }) => name)
    if (names.length === 0) continue
    const rows = await (storage.read as AnyDb).selectFrom(table).select(names).execute()
    for (const name of names) {
      const all = rows.map((row) => row[name]).join('\n')
      if (texts.some((text) => all.includes(text))) places.push(`${table}.${name}`)
    }
  }
  return places
}

onEveryDatabase((kind, open) => {
  describe('what secrets have made', () => {
    let service: TestService
    let hand: ScenarioTools
    beforeAll(async () => {
      service = await startService(open)
      hand = scenarioTools(service, await buildWorld(service), systemClock)
      const line = new Line(service.url)
      for (const [n, { name, entry }] of mutating(api).entries()) {
        if (!isTried(kind, n, 6)) continue
        const { input, token } = await scenarioOf(name, entry, hand)
        const wire = toWire(entry, input, token)
        const once = { headers: { ...wire.headers, 'idempotency-key': newId() } }
        const { status } = await line.send({ ...wire, ...(name === 'webhooks.create' && once) })
        expect([name, status < 400]).toEqual([name, true])
      }
      await line.close()
    }, 240_000)
    afterAll(() => service.close())

    it('is in columns that are listed as encrypted, or as hashed with the secret that does it', async () => {
      expect(await unlisted(service.storage)).toEqual({ encrypted: [], hashed: [] })
      const schema = await schemaOf(service.storage)
      const columns = Object.entries(schema).flatMap(([table, one]) =>
        one.columns.map(({ name }) => `${table}.${name}`),
      )
      expect(Object.keys(hashedColumns).filter((place) => !columns.includes(place))).toEqual([])
    })

    it('opens with the secret where it is encrypted, and is stored nowhere in clear', async () => {
      expect(await findUnreadable(service.storage, cipher)).toEqual([])
      const secrets = await openedIn(service.storage)
      expect(secrets.length).toBeGreaterThan(3)
      expect(await placesIn(service.storage, secrets)).toEqual([])
    })

    // On Postgres a part of the calls is made.
    it.runIf(kind === 'sqlite')('is in each of the columns that are encrypted', async () => {
      const db = service.storage.read as AnyDb
      const empty: string[] = []
      for (const { table, column } of encryptedColumns) {
        const row = await db
          .selectFrom(table)
          .select(column)
          .where(column, '<>', '')
          .limit(1)
          .executeTakeFirst()
        if (row === undefined) empty.push(`${table}.${column}`)
      }
      // Sign-ins at an identity provider, what waits for a moment, and a secret that is being replaced.
      const brief =
        /^(sso_sessions|sso_identities|saml_keys|mails|registrations)\.|^webhooks\.previous_secret$/
      expect(empty.filter((place) => !brief.test(place))).toEqual([])
    })
  })

  it('a secret that is also stored in clear is seen', async () => {
    const { storage } = await open()
    const row = { token_hash: 'a secret of 20 letters', content: '{}', expires_at: '9999' }
    await storage.write((tx) => tx.insertInto('registrations').values(row).execute())
    expect(await placesIn(storage, ['secret of 20', 'another'])).toEqual(['registrations.token_hash'])
  })

  it('a column of each kind that is on no list is seen, by what it holds or by its name', async () => {
    const { storage } = await open()
    const encrypted = cipher.encrypt('secret', `webhooks.secret.${newId()}`)
    await storage.write(async (tx) => {
      const db = tx as AnyDb
      const columns = ['bare text', 'within text', 'mark text', 'short text', 'code_hash text', 'name text']
      await sql`create table planted (id text primary key, ${sql.raw(columns.join(', '))})`.execute(db)
      const within = JSON.stringify({ url: `https://example.com/?t=${encrypted}` })
      const short = hash('sha256', 'secret', 'base64url')
      const row = {
        id: newId(),
        bare: encrypted,
        within,
        mark: digestOf('secret'),
        short,
        code_hash: null,
        name: 'v1.a',
      }
      await db.insertInto('planted').values(row).execute()
    })
    expect(await unlisted(storage)).toEqual({
      encrypted: ['planted.bare', 'planted.within'],
      hashed: ['planted.code_hash', 'planted.mark', 'planted.short'],
    })
  })

  it('a value in clear in a column that is encrypted is seen', async () => {
    const { storage } = await open()
    const row = { token_hash: digestOf('a'), content: '{"email":"a@example.com"}', expires_at: '9999' }
    await storage.write((tx) => tx.insertInto('registrations').values(row).execute())
    expect(await findUnreadable(storage, cipher)).toEqual([
      { column: 'registrations.content', otherKey: 1, damaged: 0 },
    ])
  })
})
