import { migrations } from '../../migrations/index.ts'
import { encryptionKeyName } from '../../src/core/cipher.ts'
import { SetupError } from '../../src/core/errors.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import type { Cell } from '../../src/storage/backup/row-pages.ts'
import { tablesAfter } from '../../src/storage/backup/tables-after.ts'
import { checksumsOf, type Migration } from '../../src/storage/migrate.ts'
import { version } from '../../src/version.ts'
import type { KnownKeys } from '../config.ts'
import { type UnmatchedKey, unmatchedKeys } from '../key-fingerprints.ts'
import { secretsFileName } from '../secrets/file.ts'
import { ChainCheck, verifyingKeys } from './chain-check.ts'
import { isKept } from './contents.ts'
import { assertEncryptedValues, cipherFor, EncryptionCheck } from './encryption-check.ts'
import type { Head, Tail } from './format.ts'
import { HeadCheck } from './head-check.ts'
import { type ArchiveSource, damaged, readArchive } from './read-archive.ts'

export type CheckedArchive = {
  head: Head
  tail: Tail
  /** The schema of the backup, and the migrations that make it. */
  tables: TableShape[]
  migrations: Migration[]
  /** Of an archive with secrets. */
  secrets: Buffer | undefined
  unmatched: UnmatchedKey[]
  /** Public keys that sign the audit log here, and those that signed it before; none when they are not known. */
  signers: Buffer[]
}

/**
 * Reads a whole archive and says whether it can be restored here, before anything is written.
 * @throws SetupError
 */
export async function checkArchive(
  source: ArchiveSource,
  {
    keysWith,
    acceptsLossOf,
    isRehearsal,
    acceptsNul,
    onBytes,
  }: {
    /** The keys of the target, given the secrets.json that it would get. */
    keysWith(secrets: Buffer | undefined): KnownKeys
    /** Whether the loss of what this key has made is accepted. */
    acceptsLossOf(name: string): boolean
    /** No loss can be accepted. */
    isRehearsal: boolean
    /** Whether the target stores texts with a NUL. */
    acceptsNul: boolean
    onBytes(read: number): void
  },
): Promise<CheckedArchive> {
  const { file } = source
  let head: Head | undefined
  let own: Migration[] = []
  let tables: TableShape[] = []
  let table: TableShape | undefined
  let secrets: Buffer | undefined
  let chains: ChainCheck | undefined
  let encrypted: EncryptionCheck | undefined
  let headCheck: HeadCheck | undefined
  let all: TableShape[] = []
  let unmatched: UnmatchedKey[] | undefined
  const seen = new Set<string>()

  /** The files come first: once a table comes, it is known which keys the target has. */
  const chainCheck = (): ChainCheck => {
    if (chains !== undefined) return chains
    const known = keysWith(secrets)
    unmatched = unmatchedKeys(head!.keys, known)
    chains = new ChainCheck(verifyingKeys(known, unmatched))
    for (const [path, content] of copies) chains.file(path, content)
    const cipher = acceptsLossOf(encryptionKeyName) ? undefined : cipherFor(head!.keys, known)
    encrypted = cipher && new EncryptionCheck(cipher)
    return chains
  }
  const copies: [path: string, content: Buffer][] = []

  const tail = await readArchive(
    source,
    {
      async head(it) {
        head = it
        own = await knownMigrations(file, it)
        all = await tablesAfter(own)
        tables = all.filter(({ name }) => isKept(name))
        headCheck = new HeadCheck(it)
      },
      file(path, content) {
        if (path === secretsFileName) secrets = content
        else if (path.startsWith('checkpoints/')) copies.push([path, content])
      },
      table(name, columns) {
        table = tables.find((one) => one.name === name)
        const names = table?.columns.map((column) => column.name)
        if (names?.join() !== columns.join()) {
          throw damaged(file, `its table ${name} does not have the columns that ${own.at(-1)!.name} gives it`)
        }
        seen.add(name)
        if (seen.size !== tables.indexOf(table!) + 1)
          throw damaged(file, `its table ${name} is not in its place`)
      },
      rows(rows) {
        for (const row of rows) {
          checkRow(file, table!, row, acceptsNul)
          const fault = headCheck!.row(table!, row)
          if (fault !== undefined) throw damaged(file, fault)
        }
        const checked = chainCheck()
        encrypted?.rows(table!, rows)
        if (!table!.name.startsWith('audit_')) return
        const names = table!.columns.map((column) => column.name)
        checked.rows(
          table!.name,
          rows.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]]))),
        )
      },
      endTable() {},
    },
    onBytes,
  ).catch(async (error: unknown) => {
    // Damaged bytes may read like another schema: the archive says at its end whether they are its own.
    await readArchive(source, { head() {}, file() {}, table() {}, rows() {}, endTable() {} })
    throw error
  })
  const missing = tables.find(({ name }) => !seen.has(name))
  if (missing) throw damaged(file, `its table ${missing.name} is missing`)
  const unlike = headCheck!.end(all)
  if (unlike !== undefined) throw damaged(file, unlike)
  chainCheck().end()
  const [fault] = chainCheck().faults
  if (fault !== undefined) {
    throw new SetupError(`${file} is not restored: ${fault}. Restore a backup from before that.`)
  }
  assertEncryptedValues(file, encrypted, { atBackup: tail.unreadable ?? {}, isRehearsal })
  return {
    head: head!,
    tail,
    tables,
    migrations: own,
    secrets,
    unmatched: unmatched!,
    signers: chainCheck().trusted,
  }
}

/** @throws SetupError for a schema that this version does not know */
async function knownMigrations(file: string, head: Head): Promise<Migration[]> {
  const checksums = await checksumsOf(migrations)
  for (const { name, checksum } of head.migrations) {
    const known = checksums.get(name)
    if (known === undefined) {
      throw new SetupError(
        `${file} was made by svc ${head.version} with a newer schema (${name}): restore it with that version, this is ${version}`,
      )
    }
    if (known !== checksum) {
      throw new SetupError(
        `${file} was made with another ${name} than that of svc ${version}: restore it with svc ${head.version}`,
      )
    }
  }
  const names = new Set(head.migrations.map(({ name }) => name))
  return migrations.filter(({ name }) => names.has(name))
}

function checkRow(
  file: string,
  { name, columns }: TableShape,
  row: readonly Cell[],
  acceptsNul: boolean,
): void {
  for (const [at, { name: column, kind, nullable }] of columns.entries()) {
    const cell = row[at]!
    const fits = cell === null ? nullable : typeof cell === (kind === 'text' ? 'string' : 'number')
    if (!fits) throw damaged(file, `a row of ${name} has no ${kind} in ${column}`)
    if (!acceptsNul && typeof cell === 'string' && cell.includes('\0')) {
      throw new SetupError(
        `${file} has a NUL character in ${name}.${column}, which Postgres cannot store: restore it to SQLite`,
      )
    }
  }
}
