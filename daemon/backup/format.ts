import { z } from 'zod'

/*
 * An archive is one zstd stream of lines, each a JSON text and a line feed:
 *
 *   the head
 *   a line for each file: {"file":"checkpoints/system","content":"<base64>"}
 *   for each table by name: {"table":"users","columns":["auth_epoch",…]}, then a JSON list for each row
 *   the tail
 *
 * Columns are ordered by name and rows by primary key, so equal tables have equal lines whatever the database. Head and tail
 * together are the manifest: the head says what was read, the tail what was written, and the digest of all lines
 * before it. An encrypted archive is the same stream in the age format (age-encryption.org/v1).
 */

export const formatName = 'svc-backup/1'

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
  sha256: digest,
})
export type Tail = z.output<typeof Tail>

/** Longer than any row: the largest body of a request has 24 MiB. */
export const maxLineBytes = 256 * 2 ** 20
