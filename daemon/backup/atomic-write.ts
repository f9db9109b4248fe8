import { open, rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { makeFolder } from '../../src/core/make-folder.ts'

/** The file has all of its bytes or is not there. */
export async function writeFileAtomically(path: string, content: Buffer): Promise<void> {
  makeFolder(dirname(path))
  const draft = join(dirname(path), `.restore.${process.pid}`)
  const file = await open(draft, 'w', 0o600)
  await file.writeFile(content)
  await file.sync()
  await file.close()
  await rename(draft, path)
}
