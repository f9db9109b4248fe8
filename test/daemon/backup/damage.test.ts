import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { isKept } from '../../../daemon/backup/contents.ts'
import { createCipher } from '../../../src/core/cipher.ts'
import { type EncryptionContext, encryptedColumns } from '../../../src/core/encrypted-columns.ts'
import { SetupError } from '../../../src/core/errors.ts'
import { lockDirectory } from '../../../src/storage/directory-lock.ts'
import { takesTurn } from '../../depth.ts'
import { testSecrets } from '../../harness.ts'
import { bytesOf, fileOf, linesOf, packed, sealed, sectionOf, withCell, withHead } from './archives.ts'
import {
  backupOf,
  emptyPlace,
  type Filled,
  filledPlace,
  kinds,
  type Place,
  restored,
  someFile,
  withStorage,
} from './filled.ts'

let filled: Filled
let sound: Buffer
/** All of them, and those before the tail. */
let lines: string[]
let body: string[]
beforeAll(async () => {
  filled = await filledPlace('sqlite')
  sound = await bytesOf((await backupOf(filled)).file)
  lines = linesOf(sound)
  body = lines.slice(0, -1)
})

type Damage = [name: string, make: () => Buffer, says: RegExp]

const without = (all: readonly string[], at: number, count = 1): string[] => all.toSpliced(at, count)
const rowOf = (table: string): number => sectionOf(lines, table).from + 1
const forged = (all: readonly string[]): Buffer => packed(sealed(all))

/** The bytes before are hints to the decompression, and say nothing of the content. */
const flips = [7, 9, 40, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, -5, -3, -1]
const flipped = (at: number): Damage => [
  `a bit flipped at ${at}`,
  () => {
    const place = at < 0 ? sound.length + at : at < 1 ? Math.floor(sound.length * at) : at
    const bytes = Buffer.from(sound)
    bytes[place]! ^= 0x10
    return bytes
  },
  /is damaged: |of another version of svc/,
]

const ofBytes: Damage[] = [
  ['nothing in it', () => Buffer.alloc(0), /is not a backup of svc/],
  ['three bytes', () => sound.subarray(0, 3), /is not a backup of svc/],
  ['other bytes', () => Buffer.from('PK\x03\x04 an archive of another kind'), /is not a backup of svc/],
  ['its beginning alone', () => sound.subarray(0, 200), /is damaged: /],
  ['half of it', () => sound.subarray(0, sound.length / 2), /is damaged: /],
  ['all but its last byte', () => sound.subarray(0, -1), /is damaged: /],
  ['bytes behind its end', () => Buffer.concat([sound, Buffer.from('and more')]), /is damaged: /],
  ['itself behind its end', () => Buffer.concat([sound, sound]), /goes on after its end/],
  ['a hole of zeros', () => Buffer.from(sound).fill(0, 500, 900), /is damaged: /],
  ...flips.map(flipped),
]

const ofLines: Damage[] = [
  ['no tail', () => packed(body), /ends too early/],
  ['a tail without its line end', () => packed(lines).subarray(0, -1), /is damaged/],
  ['no head', () => packed(lines.slice(1)), /its head is not that of a backup/],
  ['a row less', () => packed(without(lines, rowOf('users'))), /users has \d+ rows instead of \d+/],
  [
    'a row twice',
    () => packed(lines.toSpliced(rowOf('users'), 0, lines[rowOf('users')]!)),
    /users has \d+ rows/,
  ],
  [
    'two rows exchanged',
    () => {
      const at = rowOf('users')
      return packed(lines.with(at, lines[at + 1]!).with(at + 1, lines[at]!))
    },
    /the rows of users are not those/,
  ],
  [
    'a changed cell',
    () => packed(withCell(lines, 'users', { column: 'email', value: () => 'other@example.com' })),
    /the rows of users are not those/,
  ],
  ['a row outside a table', () => packed(lines.toSpliced(1, 0, '["x"]')), /a row outside a table/],
  ['a row with a cell more', () => packed(lines.with(rowOf('users'), '["x"]')), /does not have its columns/],
  [
    'a row with an object in it',
    () => packed(withCell(lines, 'users', { column: 'email', value: () => ({}) })),
    /does not have its columns/,
  ],
  ['a line that is not JSON', () => packed(lines.with(rowOf('users'), '["x"')), /a line is not JSON/],
  [
    'a line of another kind',
    () => packed(lines.with(rowOf('users'), '{"x":1}')),
    /neither a table nor a file/,
  ],
  [
    'a changed file',
    () => {
      const at = lines.findIndex((line) => line.includes('"checkpoints/system"'))
      return packed(lines.with(at, JSON.stringify({ file: 'checkpoints/system', content: 'AAAA' })))
    },
    /the file checkpoints\/system is not the one/,
  ],
  [
    'a file less',
    () =>
      packed(
        without(
          lines,
          lines.findIndex((line) => line.includes('"checkpoints/system"')),
        ),
      ),
    /the file checkpoints\/system is missing/,
  ],
  [
    'a changed head',
    () => packed(withHead(lines, (head) => (head.madeAt = '2020-01-01T00:00:00.000Z'))),
    /its lines/,
  ],
  [
    'another digest',
    () =>
      packed([...body, lines.at(-1)!.replace(/"sha256":"[0-9a-f]{64}"}$/, `"sha256":"${'0'.repeat(64)}"}`)]),
    /its lines are not those/,
  ],
  [
    'white space in its tail',
    () => packed([...body, lines.at(-1)!.replace('{"tables"', '{ "tables"')]),
    /its end/,
  ],
  [
    'a table that its tail does not have',
    () => packed([...body, lines.at(-1)!.replace(/"users":\{[^}]+\},/, '')]),
    /its end does not name/,
  ],
]

/** From a migration on that adds columns: many of the latest add an index alone. */
const dropFrom = (first: string) => (head: { migrations: { name: string }[] }) =>
  head.migrations.splice(head.migrations.findIndex(({ name }) => name === first))

const ofForgers: Damage[] = [
  [
    'a newer schema',
    () =>
      forged(
        withHead(body, (head) => head.migrations.push({ name: '9999_later', checksum: '0'.repeat(64) })),
      ),
    /newer schema \(9999_later\): restore it with that version/,
  ],
  [
    'another migration of the same name',
    () => forged(withHead(body, (head) => (head.migrations[3]!.checksum = '0'.repeat(64)))),
    /another 0004_people/,
  ],
  [
    'a migration less than its columns need',
    () => forged(withHead(body, dropFrom('0071_maintenance_windows'))),
    /its table \w+ does not have the columns that \w+ gives it/,
  ],
  [
    'another format',
    () => forged(withHead(body, (head) => Object.assign(head, { format: 'svc-backup/2' }))),
    /another version of svc/,
  ],
  [
    'a format of others',
    () => forged(withHead(body, (head) => Object.assign(head, { format: 'tar' }))),
    /its head is not/,
  ],
  [
    'a head with more in it',
    () => forged(withHead(body, (head) => Object.assign(head, { more: 1 }))),
    /its head is not/,
  ],
  [
    'fingerprints of other keys',
    () => forged(withHead(body, (head) => (head.keys[0]!.print = '0'.repeat(24)))),
    /its head names other keys than its rows\. Restore another backup/,
  ],
  [
    'a table less',
    () => {
      const { from, to } = sectionOf(body, 'sites')
      return forged(without(body, from, to - from))
    },
    /its table sso_assertions is not in its place/,
  ],
  [
    'no last table',
    () => {
      const { from } = sectionOf(lines, 'webhooks')
      return forged(body.slice(0, from))
    },
    /its table webhooks is missing/,
  ],
  [
    'a table that is left out',
    () => forged([...body, '{"table":"sessions","columns":["id"]}', '["x"]']),
    /a table "sessions", which no backup has/,
  ],
  [
    'a table of others',
    () => forged([...body, '{"table":"pg_authid","columns":["rolname"]}']),
    /"pg_authid"/,
  ],
  ['the same table twice', () => forged([...body, body[sectionOf(lines, 'users').from]!]), /users twice/],
  [
    'keys of somebody else, in clear',
    () => forged(body.toSpliced(1, 0, '{"file":"secrets.json","content":"e30="}')),
    /it has a file "secrets.json", which no backup has/,
  ],
  [
    'a file outside its folders',
    () => forged(body.toSpliced(1, 0, '{"file":"outbox/../../../x.json","content":"AAAA"}')),
    /which no backup has/,
  ],
  [
    'a text in a number',
    () => forged(withCell(body, 'users', { column: 'is_system', value: () => 'yes' })),
    /a row of users has no number in is_system/,
  ],
  [
    'null in a column that needs a value',
    () => forged(withCell(body, 'users', { column: 'email', value: () => null })),
    /a row of users has no text in email/,
  ],
  [
    'a changed audit entry',
    () =>
      forged(
        withCell(body, 'audit_logs', {
          row: -1 + sectionOf(body, 'audit_logs').to - sectionOf(body, 'audit_logs').from - 1,
          column: 'canonical',
          value: (text) => String(text).replace('"result":"', '"result":"not '),
        }),
      ),
    /audit chain .*: Entry \d+ was altered/,
  ],
  [
    'a changed column of an audit entry',
    () => forged(withCell(body, 'audit_logs', { row: 1, column: 'action', value: () => 'nothing.happened' })),
    /audit chain .*: Entry \d+ was altered/,
  ],
  [
    'an audit entry less',
    () => forged(without(body, sectionOf(body, 'audit_logs').from + 2)),
    /audit chain .*: Entry \d+ is missing/,
  ],
  [
    'the end of a chain less',
    () => forged(without(body, sectionOf(body, 'audit_logs').to - 1)),
    /audit chain system: Entries after \d+ are missing/,
  ],
  [
    'no head of a chain',
    () => forged(without(body, sectionOf(body, 'audit_heads').to - 1)),
    /its head names other ends of audit chains than its rows/,
  ],
  [
    'a checkpoint that signs more than there is',
    () => {
      const at = body.findIndex((line) => line.startsWith('{"file":"checkpoints/system"'))
      const { content } = JSON.parse(body[at]!) as { content: string }
      const note = Buffer.from(content, 'base64')
        .toString()
        .replace(/\n\d+\n/, '\n99999\n')
      const file = { file: 'checkpoints/system', content: Buffer.from(note).toString('base64') }
      return forged(body.with(at, JSON.stringify(file)))
    },
    /audit chain system: what was signed of it was signed by another key/,
  ],
]

/** What is encrypted, in a backup. */
const sealedColumns = encryptedColumns.filter(({ table }) => isKept(table))
const ofCiphers: Damage[] = sealedColumns.flatMap(({ table, column }) => {
  const withValue = (value: string) => forged(withCell(body, table, { column, value: () => value }))
  const place = `${table}.${column}.of another row` as EncryptionContext
  return [
    [
      `a value of ${table}.${column} that another key has sealed`,
      () => withValue(createCipher(['a key of somebody else']).encrypt('x', place)),
      new RegExp(
        `1 value of ${table}\\.${column} was encrypted with another key: set APP_ENCRYPTION_KEY_PREVIOUS`,
      ),
    ],
    [
      `a value of ${table}.${column} that belongs to another row`,
      () => withValue(createCipher([testSecrets.APP_ENCRYPTION_KEY]).encrypt('x', place)),
      new RegExp(
        `1 value of ${table}\\.${column} does not open, .*--without-keys APP_ENCRYPTION_KEY restores`,
      ),
    ],
  ]
})

describe.each(kinds)('into an empty database on %s', (kind) => {
  let place: Place
  beforeAll(async () => {
    place = await emptyPlace(kind)
  })

  /** Refused with a sentence, and nothing is there that was not there before. */
  async function refused(file: string, says: RegExp, more = {}, env = {}): Promise<void> {
    const error = await restored(place, file, more, env).then(
      () => new Error('it was restored'),
      (failure: Error) => failure,
    )
    expect(error.message).toMatch(says)
    expect(error).toBeInstanceOf(SetupError)
    expect(error.message).not.toMatch(/\n|undefined|\[object/)
    await expectEmpty(place)
  }

  it.each([...ofBytes, ...ofLines, ...ofForgers, ...ofCiphers].filter((_, index) => takesTurn(kind, index)))(
    'an archive with %s is not restored',
    async (_, make, says) => {
      await refused(await fileOf(make()), says)
    },
  )

  it('a file that is not there, or a directory, is not restored', async () => {
    await refused(join(filled.dataDir, 'none'), /there is no such file/)
    await refused(filled.dataDir, /Cannot read .*: EISDIR/)
  })

  it('an archive is not restored without its keys, nor with some of them', async () => {
    const file = await fileOf(sound)
    const other = 'xm1oHhdB0bOsHdQEhNmQkK5UXq1nB7F8lkT6nGkJ3sA='
    await refused(file, /JWT_SECRET\. .* accepts that all sessions end/, {}, { JWT_SECRET: other })
    await refused(
      file,
      /other keys: APP_ENCRYPTION_KEY, AUDIT_SIGNING_KEY/,
      {},
      { APP_ENCRYPTION_KEY: other },
    )
    const accepted = { 'without-keys': ['JWT_SECRET', 'AUDIT_SIGNING_KEY'] }
    await refused(file, /other keys: APP_ENCRYPTION_KEY\./, accepted, { APP_ENCRYPTION_KEY: other })
  })

  if (kind === 'postgres') {
    it('a text that Postgres cannot store is named', async () => {
      const archive = forged(withCell(body, 'users', { column: 'name', value: () => 'a\0b' }))
      await refused(await fileOf(archive), /a NUL character in users.name.*restore it to SQLite/)
    })
  }
})

async function expectEmpty({ dataDir, databaseUrl }: Place): Promise<void> {
  expect(await readdir(dataDir)).toEqual([])
  if (databaseUrl === undefined) return
  const tables = await withStorage({ dataDir: await someFolder(), databaseUrl }, ({ read }) =>
    read.introspection.getTables(),
  )
  expect(tables).toEqual([])
}

async function someFolder(): Promise<string> {
  const folder = await someFile()
  await mkdir(folder)
  return folder
}

describe('a target that is not empty', () => {
  it.each(kinds)('on %s keeps what it has', async (kind) => {
    const place = await emptyPlace(kind)
    const file = await fileOf(sound)
    await restored(place, file)
    const users = () => withStorage(place, ({ read }) => read.selectFrom('users').selectAll().execute())
    const before = await users()
    await expect(restored(place, file)).rejects.toThrow(/is not empty, and a restore overwrites nothing/)
    expect(await users()).toEqual(before)
  })

  it('with a table of another program is refused', async () => {
    const place = await emptyPlace('postgres')
    await withStorage(place, async ({ write }) => {
      await write(async (tx) => void (await tx.schema.createTable('mine').addColumn('a', 'text').execute()))
    })
    await expect(restored(place, await fileOf(sound))).rejects.toThrow(/is not empty/)
  })

  it('with checkpoints or mail of another database is refused', async () => {
    const place = await emptyPlace('sqlite')
    const folder = join(place.dataDir, 'checkpoints')
    await mkdir(folder)
    await writeFile(join(folder, 'system'), 'of another')
    await expect(restored(place, await fileOf(sound))).rejects.toThrow(
      /checkpoints\/system is neither of this backup nor signed with its key.*move/,
    )
    expect(await readdir(place.dataDir)).toEqual(['checkpoints'])
    await rm(folder, { recursive: true })
    await restored(place, await fileOf(sound))
  })

  it('that a service is starting on is refused', async () => {
    const place = await emptyPlace('sqlite')
    const unlock = lockDirectory(place.dataDir)
    await expect(restored(place, await fileOf(sound))).rejects.toThrow(
      /Another svc serve, svc db restore or svc db copy uses .*: wait for it to end/,
    )
    unlock()
  })
})

describe.each(kinds)('rows that the database on %s refuses', (kind) => {
  it.each([
    [
      'refer to a row that is not there',
      () => withCell(body, 'sites', { column: 'org_id', value: () => 'none' }),
      /a row refers to one that is not in it/,
    ],
    [
      'are there twice',
      () => body.toSpliced(rowOf('sites'), 0, body[rowOf('sites')]!),
      /a row of sites stands in it twice/,
    ],
  ])('because they %s are refused, and another backup can be restored', async (_, make, says) => {
    const place = await emptyPlace(kind)
    const failed = restored(place, await fileOf(forged(make())))
    await expect(failed).rejects.toThrow(SetupError)
    await expect(failed).rejects.toThrow(/is damaged: .*Restore another backup/)
    await expect(failed).rejects.toThrow(says)
    await restored(place, await fileOf(sound))
    expect((await backupOf(place)).rows).toBeGreaterThan(1000)
  })
})
