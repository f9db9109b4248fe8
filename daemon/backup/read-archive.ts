import { createHash, type Hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { createZstdDecompress } from 'node:zlib'
import { SetupError } from '../../src/core/errors.ts'
import { parseJson } from '../../src/core/json.ts'
import { safeParse } from '../../src/core/schema.ts'
import type { Cell } from '../../src/storage/backup/row-pages.ts'
import { secretsFileName } from '../secrets/file.ts'
import { ageMagic, decrypt } from './age.ts'
import { isKept, isKeptFile } from './contents.ts'
import { FileLine, formatName, Head, maxLineBytes, TableLine, Tail, tailLine } from './format.ts'
import { storedArchive } from './open-store.ts'

/** Gets the parts of an archive in their order. Rows come in batches; those of a table end with `endTable`. */
export type ArchiveVisitor = {
  head(head: Head): Promise<void> | void
  file(path: string, content: Buffer): Promise<void> | void
  table(name: string, columns: readonly string[]): Promise<void> | void
  rows(rows: Cell[][]): Promise<void> | void
  endTable(): Promise<void> | void
}

export type ArchiveSource = { file: string; identityFile: string | undefined }

/** A fault of the archive, which says nothing against the target. */
export const damaged = (file: string, what: string): SetupError =>
  new SetupError(`${file} is damaged: ${what}. Restore another backup.`)

/**
 * Reads an archive to its end and checks its form, its counts and all of its digests. The visitor gets each part before
 * it is known whether the rest is sound. `onBytes` gets how much of the file was read.
 * @throws SetupError
 */
export async function readArchive(
  { file, identityFile }: ArchiveSource,
  visitor: ArchiveVisitor,
  onBytes: (read: number) => void = () => {},
): Promise<Tail> {
  const { store, name } = storedArchive(file)
  const isEncrypted = await beginsEncrypted(file, () => store.read(name, ageMagic.length))
  const reading = new ArchiveReading(file, visitor, isEncrypted)
  const stored = await store.read(name)
  let read = 0
  stored.on('data', (chunk) => {
    read += chunk.length
    onBytes(read)
  })
  const expand = createZstdDecompress()
  try {
    const packed = isEncrypted ? await opened(stored, { file, identityFile }) : stored
    let given = 0
    packed.on('data', (chunk: Buffer) => {
      given += chunk.length
    })
    stored.on('error', (error) => expand.destroy(error))
    packed.on('error', (error) => expand.destroy(error))
    for await (const chunk of explained(packed.pipe(expand), file)) await reading.push(chunk)
    // The decompression ignores what follows the stream.
    if (expand.bytesWritten !== given) throw damaged(file, 'it goes on after its end')
    return reading.end()
  } finally {
    stored.destroy()
    expand.destroy()
  }
}

async function opened(stored: Readable, { file, identityFile }: ArchiveSource): Promise<Readable> {
  try {
    return Readable.fromWeb((await decrypt(Readable.toWeb(stored) as never, file, identityFile)) as never)
  } catch (error) {
    if (error instanceof SetupError) throw error
    throw damaged(file, 'it cannot be decrypted')
  }
}

/** Faults of the bytes, apart from those of what is done with them. */
async function* explained(stream: Readable, file: string): AsyncGenerator<Buffer> {
  try {
    yield* stream
  } catch (error) {
    const { code = '', syscall } = error as NodeJS.ErrnoException
    // Also a connection to object storage that ends too early.
    if (syscall === 'read' || syscall === 'open' || code === 'ECONNRESET')
      throw new SetupError(`Cannot read ${file}: ${code}`)
    throw damaged(file, 'it cannot be decrypted and unpacked to its end')
  }
}

async function beginsEncrypted(file: string, begin: () => Promise<Readable>): Promise<boolean> {
  const chunks: Buffer[] = []
  for await (const chunk of explained(await begin(), file)) chunks.push(chunk)
  const first = Buffer.concat(chunks)
  if (first.equals(ageMagic)) return true
  if (first.length >= 4 && first.readUInt32LE(0) === zstdMagic) return false
  throw new SetupError(`${file} is not a backup of svc`)
}

const zstdMagic = 0xfd2fb528
const newline = 0x0a
/** Rows that a visitor gets at once. */
const batchRows = 500
const batchBytes = 2 ** 20

type Section = { name: string; width: number; rows: number; hash: Hash }

class ArchiveReading {
  /** Whoever can write an archive that is not encrypted would choose the keys of the service. */
  readonly #mayHaveSecrets: boolean
  readonly #file: string
  readonly #visitor: ArchiveVisitor
  readonly #whole = createHash('sha256')
  readonly #found: Tail = { tables: {}, files: {}, sha256: '' }
  #partial: Buffer[] = []
  #partialBytes = 0
  #line = 0
  #isBegun = false
  #section: Section | undefined
  #batch: Cell[][] = []
  #batchBytes = 0
  #tail: Tail | undefined

  constructor(file: string, visitor: ArchiveVisitor, mayHaveSecrets: boolean) {
    this.#mayHaveSecrets = mayHaveSecrets
    this.#file = file
    this.#visitor = visitor
  }

  async push(chunk: Buffer): Promise<void> {
    let from = 0
    for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, from)) {
      const piece = chunk.subarray(from, end + 1)
      await this.#take(this.#partialBytes === 0 ? piece : Buffer.concat([...this.#partial, piece]))
      this.#partial = []
      this.#partialBytes = 0
      from = end + 1
    }
    if (from === chunk.length) return
    this.#partial.push(chunk.subarray(from))
    this.#partialBytes += chunk.length - from
    if (this.#partialBytes > maxLineBytes) throw this.#fault('a line is too long')
  }

  end(): Tail {
    if (this.#tail === undefined || this.#partialBytes > 0) throw this.#fault('it ends too early')
    return this.#tail
  }

  #fault(what: string): SetupError {
    return damaged(this.#file, `${what} (line ${this.#line})`)
  }

  async #take(line: Buffer): Promise<void> {
    this.#line += 1
    if (this.#tail !== undefined) throw this.#fault('it goes on after its end')
    const value = this.#parse(line)
    if (!this.#isBegun) {
      this.#isBegun = true
      this.#whole.update(line)
      return void (await this.#visitor.head(this.#headOf(value)))
    }
    if (Array.isArray(value)) {
      this.#whole.update(line)
      return this.#row(value, line)
    }
    await this.#endSection()
    const tail = safeParse(Tail, value)
    if (tail.success) {
      this.#tail = this.#checkTail(tail.data, line)
      return
    }
    this.#whole.update(line)
    const table = safeParse(TableLine, value)
    if (table.success) return this.#begin(table.data)
    const file = safeParse(FileLine, value)
    if (!file.success) throw this.#fault('a line is neither a table nor a file nor the end')
    const { file: path, content } = file.data
    const isAllowed = isKeptFile(path) && (path !== secretsFileName || this.#mayHaveSecrets)
    if (!(isAllowed && this.#found.files[path] === undefined)) {
      throw this.#fault(`it has a file ${JSON.stringify(path.slice(0, 100))}, which no backup has`)
    }
    const bytes = Buffer.from(content, 'base64')
    this.#found.files[path] = {
      bytes: bytes.length,
      sha256: createHash('sha256').update(bytes).digest('hex'),
    }
    await this.#visitor.file(path, bytes)
  }

  #parse(line: Buffer): unknown {
    // A SyntaxError would quote the line, which may hold secrets.
    const value = parseJson(line)
    if (value === undefined) throw this.#fault('a line is not JSON')
    return value
  }

  #headOf(value: unknown): Head {
    const { format } = (value ?? {}) as { format?: unknown }
    const head = safeParse(Head, value)
    if (head.success) return head.data
    if (typeof format === 'string' && format.startsWith('svc-backup/') && format !== formatName) {
      throw new SetupError(
        `${this.#file} has the format ${JSON.stringify(format.slice(0, 40))} of another version of svc`,
      )
    }
    throw this.#fault('its head is not that of a backup')
  }

  async #begin({ table: name, columns }: TableLine): Promise<void> {
    if (!isKept(name))
      throw this.#fault(`it has a table ${JSON.stringify(name.slice(0, 100))}, which no backup has`)
    if (this.#found.tables[name] !== undefined) throw this.#fault(`it has the table ${name} twice`)
    this.#section = { name, width: columns.length, rows: 0, hash: createHash('sha256') }
    await this.#visitor.table(name, columns)
  }

  async #row(cells: unknown[], line: Buffer): Promise<void> {
    const section = this.#section
    if (section === undefined) throw this.#fault('it has a row outside a table')
    if (cells.length !== section.width || !cells.every(isCell)) {
      throw this.#fault(`a row of ${section.name} does not have its columns`)
    }
    section.rows += 1
    section.hash.update(line)
    this.#batch.push(cells as Cell[])
    this.#batchBytes += line.length
    if (this.#batch.length >= batchRows || this.#batchBytes >= batchBytes) await this.#flush()
  }

  async #flush(): Promise<void> {
    const rows = this.#batch
    this.#batch = []
    this.#batchBytes = 0
    if (rows.length > 0) await this.#visitor.rows(rows)
  }

  async #endSection(): Promise<void> {
    const section = this.#section
    if (section === undefined) return
    await this.#flush()
    this.#section = undefined
    this.#found.tables[section.name] = { rows: section.rows, sha256: section.hash.digest('hex') }
    await this.#visitor.endTable()
  }

  #checkTail(tail: Tail, line: Buffer): Tail {
    const found = this.#found
    // Only the backup had the keys to count these.
    if (tail.unreadable !== undefined) found.unreadable = tail.unreadable
    found.sha256 = this.#whole.digest('hex')
    for (const [name, { rows, sha256 }] of Object.entries(tail.tables)) {
      const own = found.tables[name]
      if (own === undefined) throw this.#fault(`the table ${name} is missing`)
      if (own.rows !== rows) throw this.#fault(`${name} has ${own.rows} rows instead of ${rows}`)
      if (own.sha256 !== sha256) throw this.#fault(`the rows of ${name} are not those that were backed up`)
    }
    for (const [path, { sha256 }] of Object.entries(tail.files)) {
      if (found.files[path] === undefined) throw this.#fault(`the file ${path} is missing`)
      if (found.files[path].sha256 !== sha256)
        throw this.#fault(`the file ${path} is not the one that was backed up`)
    }
    if (found.sha256 !== tail.sha256) throw this.#fault('its lines are not those that were written')
    // Whatever else the tail says, it says it in other bytes.
    if (!line.equals(tailLine(found))) {
      throw this.#fault('its end does not name what it holds')
    }
    return tail
  }
}

const isCell = (value: unknown): value is Cell =>
  value === null || typeof value === 'string' || typeof value === 'number'
