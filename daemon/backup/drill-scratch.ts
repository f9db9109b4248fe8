import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'
import { makeFolder } from '../../src/core/make-folder.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { openScratch } from '../../src/storage/open-scratch.ts'
import type { Scratch } from '../../src/storage/scratch.ts'
import { secretsFile } from '../secrets/file.ts'

export type DrillScratch = {
  /** An empty data directory, and an empty database on Postgres. */
  place: DatabaseLocation
  explain: Scratch['explain']
  remove(): Promise<void>
}

/**
 * What a drill restores into: a directory below `folder`, and on Postgres a database of the same server. The secrets of the service
 * are linked, not copied. There is one drill at a time, which removes what a killed one left.
 * @throws SetupError
 */
export async function openDrillScratch(
  original: DatabaseLocation,
  { folder, note }: { folder: string; note(text: string): void },
): Promise<DrillScratch> {
  const unlock = await lockFolder(folder)
  const dataDir = join(folder, 'scratch')
  const discard = () => rmSync(dataDir, { recursive: true, force: true })
  // Ctrl-C may end the process at once.
  process.once('exit', discard)
  let drop = async () => {}
  const remove = async () => {
    try {
      await drop()
    } finally {
      discard()
      process.removeListener('exit', discard)
      unlock()
    }
  }
  try {
    discard()
    // It throws where the disk lacks room: on SQLite the service writes to the same one.
    const scratch = await openScratch(original, { purpose: 'drill', folder, note })
    drop = scratch.drop
    mkdirSync(dataDir, { mode: 0o700 })
    const secrets = secretsFile(original.dataDir)
    if (existsSync(secrets)) symlinkSync(secrets, secretsFile(dataDir))
    const { databaseUrl, explain } = scratch
    return { place: { dataDir, databaseUrl }, explain, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

async function lockFolder(folder: string): Promise<() => void> {
  const { lockDirectory } = await import('../../src/storage/directory-lock.ts')
  try {
    makeFolder(folder)
    return lockDirectory(folder)
  } catch (error) {
    if (error instanceof SetupError)
      throw new SetupError(
        `Another svc db drill works in ${folder}, or this user may not: wait for it to end`,
      )
    const { code, message } = error as NodeJS.ErrnoException
    throw new SetupError(`Cannot make ${folder} (${code ?? message}): name another directory with --scratch`)
  }
}
