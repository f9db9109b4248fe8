import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { makeFolder } from '../../src/core/make-folder.ts'
import type { Instant } from '../../src/core/time.ts'
import type { MailMessage } from '../../src/messages/ports.ts'

/** A message that was only written to the data directory. */
export type OutboxMessage = MailMessage & { id: string; at: Instant }

const folderIn = (dataDir: string): string => join(dataDir, 'outbox')

/** One file per message, written atomically. The same id replaces it. */
export async function writeOutboxMessage(dataDir: string, message: OutboxMessage): Promise<void> {
  const folder = folderIn(dataDir)
  makeFolder(folder)
  const draft = join(folder, `.${message.id}.${process.pid}`)
  await writeFile(draft, `${JSON.stringify(message, null, 2)}\n`, { mode: 0o600 })
  await rename(draft, join(folder, `${message.id}.json`))
}

/** Newest first. */
export async function readOutboxMessages(dataDir: string): Promise<OutboxMessage[]> {
  const folder = folderIn(dataDir)
  const names = (await filesIn(folder)).filter((name) => /^[^.].*\.json$/.test(name))
  const messages: OutboxMessage[] = []
  for (const name of names) {
    messages.push(JSON.parse(await readFile(join(folder, name), 'utf8')) as OutboxMessage)
  }
  const key = ({ at, id }: OutboxMessage) => `${at} ${id}`
  return messages.sort((a, b) => (key(a) < key(b) ? 1 : -1))
}

/** No folder: nothing was ever sent. */
async function filesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
