import type { Schema } from '../src/storage/columns.ts'

/** Postgres looked for the entry before through the whole chain, until it knew how long that is. */
export async function up({ linked }: Schema): Promise<void> {
  await linked('audit_logs', { chain: 'chain', seq: 'seq', checksum: 'checksum', previous: 'prev_checksum' })
}
