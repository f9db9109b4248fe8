import type { Schema } from '../src/storage/columns.ts'

/** SQLite copied each page that an entry goes to, to undo what the trigger does not let it do. */
export async function up({ linked }: Schema): Promise<void> {
  await linked('audit_logs', { chain: 'chain', seq: 'seq', checksum: 'checksum', previous: 'prev_checksum' })
}
