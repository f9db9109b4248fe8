import { openStorage } from '../../src/storage/open.ts'
import { addNote, createNotes } from './notes.ts'

/** Writes for ever, from eight sides at once, and reports each id only when its write has resolved. */
const storage = await openStorage({ dataDir: process.argv[2]! })
await createNotes(storage)
let next = 0

async function writeForEver(): Promise<never> {
  for (;;) {
    const id = next++
    await storage.write((tx) => addNote(tx, id))
    process.send?.(id)
  }
}

await Promise.all(Array.from({ length: 8 }, writeForEver))
