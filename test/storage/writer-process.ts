import { batchWrites } from '../../src/storage/batching.ts'
import { type Db, openStorage } from '../../src/storage/open.ts'
import { addNote, createNotes } from './notes.ts'

/**
 * Writes without end in eight loops, and reports each id once its write has resolved; `together`: batched.
 */
const storage = await openStorage({ dataDir: process.argv[2]! })
await createNotes(storage)
let next = 0
const together = batchWrites(storage, async (tx: Db, notes: readonly number[]) => {
  for (const id of notes) await addNote(tx, id)
  return notes
})
const keep = (id: number): Promise<unknown> =>
  process.argv[3] === 'together' ? together(id) : storage.write((tx) => addNote(tx, id))

async function writeForEver(): Promise<never> {
  for (;;) {
    const id = next++
    await keep(id)
    process.send?.(id)
  }
}

await Promise.all(Array.from({ length: 8 }, writeForEver))
