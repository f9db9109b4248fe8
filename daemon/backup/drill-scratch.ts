import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'
import type { Place } from '../../src/storage/backup/restore-target.ts'
import { secretsFile } from '../secrets/file.ts'

export type DrillScratch = {
  /** An empty data directory, and an empty database on Postgres. */
  place: Place
  remove(): Promise<void>
}

/**
 * What a drill restores into: a directory below `folder`, and on Postgres a database of the same server. The secrets of the service
 * are linked, not copied. There is one drill at a time, which removes what a killed one left.
 * @throws SetupError
 */
export async function openDrillScratch(original: Place, folder: string): Promise<DrillScratch> {
  const unlock = await lockFolder(folder)
  const dataDir = join(folder, 'scratch')
  const discard = () => rmSync(dataDir, { recursive: true, force: true })
  // Ctrl-C may end the process at once.
  process.once('exit', discard)
  let drop = async () => {}
  const remove = async () => {
    await drop()
    discard()
    process.removeListener('exit', discard)
    unlock()
  }
  try {
    discard()
    if (original.databaseUrl === undefined) await assertRoom(original.dataDir, folder)
    mkdirSync(dataDir, { mode: 0o700 })
    const secrets = secretsFile(original.dataDir)
    if (existsSync(secrets)) symlinkSync(secrets, secretsFile(dataDir))
    if (original.databaseUrl === undefined) return { place: { dataDir }, remove }
    const { createScratchDatabase } = await import('../../src/storage/postgres/scratch-database.ts')
    const { url, drop: dropDatabase } = await createScratchDatabase(original.databaseUrl, 'drill')
    drop = dropDatabase
    return { place: { dataDir, databaseUrl: url }, remove }
  } catch (error) {
    await remove()
    throw error
  }
}

async function lockFolder(folder: string): Promise<() => void> {
  const { lockDirectory } = await import('../../src/storage/sqlite/directory-lock.ts')
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
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

/** The service writes to the same disk. */
async function assertRoom(dataDir: string, folder: string): Promise<void> {
  const { assertSpace, openUntouched } = await import('../../src/storage/sqlite/copy.ts')
  const original = openUntouched(dataDir)
  try {
    await assertSpace(folder, original.bytes(), 'drill')
  } finally {
    original.close()
  }
}
