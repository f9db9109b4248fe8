import { z } from 'zod'
import type { Cell } from '../../src/storage/backup/row-pages.ts'

/*
 * An archive is one zstd stream of lines, each a JSON text and a line feed:
 *
 *   the head
 *   a line for each file: {"file":"checkpoints/system","content":"<base64>"}
 *   for each table by name: {"table":"users","columns":["auth_epoch",…]}, then a JSON list for each row
 *   the tail
 *
 * Columns are ordered by name and rows by primary key, so equal tables have equal lines whatever the database. Head and tail
 * together are the manifest: the head says what was read; the tail says what was written, and holds the digest of all
 * lines before it. An encrypted archive is the same stream in the age format (age-encryption.org/v1).
 */

export const formatName = 'svc-backup/1'

/** The lines of these rows, which digests are of. */
export const rowLines = (rows: readonly (readonly Cell[])[]): string =>
  rows.map((row) => `${JSON.stringify(row)}\n`).join('')

const count = z.int().min(0)
const digest = z.string().regex(/^[0-9a-f]{64}$/)
const instant = z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

export const Head = z.strictObject({
  format: z.literal(formatName),
  /** Of svc; it is printed. */
  version: z.string().regex(/^\d[\w.+-]{0,60}$/),
  madeAt: instant,
  source: z.enum(['sqlite', 'postgres']),
  migrations: z.array(z.strictObject({ name: z.string(), checksum: digest })).min(1),
  /** Fingerprints of the keys that the rows were written with. */
  keys: z.array(z.strictObject({ name: z.string(), print: z.string() })),
  counters: z.record(z.string(), count),
  heads: z.array(z.strictObject({ chain: z.string(), seq: count, checksum: digest })),
  /** Rows of the tables that are left out. */
  left: z.record(z.string(), count),
})
export type Head = z.output<typeof Head>

export const FileLine = z.strictObject({ file: z.string(), content: z.base64() })
export const TableLine = z.strictObject({ table: z.string(), columns: z.array(z.string()).min(1) })
export type TableLine = z.output<typeof TableLine>

export const Tail = z.strictObject({
  tables: z.record(z.string(), z.strictObject({ rows: count, sha256: digest })),
  files: z.record(z.string(), z.strictObject({ bytes: count, sha256: digest })),
  /** Encrypted values that did not open when they were backed up, by column; without it, all did, or nobody looked. */
  unreadable: z.record(z.string(), count).optional(),
  sha256: digest,
})
export type Tail = z.output<typeof Tail>

export const tailLine = ({ tables, files, unreadable, sha256 }: Tail): Buffer =>
  Buffer.from(`${JSON.stringify({ tables, files, ...(unreadable && { unreadable }), sha256 })}\n`)

/**
 * Longer than any row. A value comes from a request of 10 MiB at most (logs, in many rows; 7 MiB for a script, which is one
 * row). As a JSON text within a JSON text within the line of its row, such as the record in an audit entry that was set aside,
 * it takes four times its bytes at most, and no row repeats it. The head and the end have 200 bytes for each audit chain.
 */
export const maxLineBytes = 64 * 2 ** 20
