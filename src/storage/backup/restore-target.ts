import { existsSync } from 'node:fs'
import { SetupError } from '../../core/errors.ts'
import type { AnyDb } from '../columns.ts'
import type { Db, Storage } from '../db.ts'
import { openStorage, type StorageOptions } from '../open.ts'
import { sqliteFile } from '../sqlite/file.ts'
import { setCounters } from './catalog.ts'
import type { TargetDriver, TargetState } from './target-driver.ts'

export type DatabaseLocation = Pick<StorageOptions, 'dataDir' | 'databaseUrl'>

export type RestoreTarget = {
  storage: Storage
  load: TargetDriver['load']
  /** So that a number which a row once had is not given again. */
  setCounters(tx: Db, counters: Readonly<Record<string, number>>): Promise<void>
}

export const driverOf = async (place: DatabaseLocation): Promise<TargetDriver> =>
  place.databaseUrl === undefined
    ? (await import('../sqlite/restore-driver.ts')).sqliteRestore(place.dataDir)
    : (await import('../postgres/restore-driver.ts')).postgresRestore(place.databaseUrl)

/** @throws SetupError when the database holds something other than an unfinished restore, or the directory another one */
export async function checkRestorable(place: DatabaseLocation): Promise<void> {
  assertRestorable(place, await (await driverOf(place)).state())
  assertDirectoryOf(place)
}

/** The checkpoints of an archive replace those of the directory, by which its own audit chains would seem to be cut. */
function assertDirectoryOf({ dataDir, databaseUrl }: DatabaseLocation): void {
  if (databaseUrl === undefined || !existsSync(sqliteFile(dataDir))) return
  throw new SetupError(
    `${dataDir} has the database of another installation, whose checkpoints a restore would replace: name another directory with SVC_DATA_DIR, or move it away.`,
  )
}

function assertRestorable({ dataDir, databaseUrl }: DatabaseLocation, state: TargetState): void {
  if (state !== 'used') return
  const what = databaseUrl === undefined ? `The database in ${dataDir}` : 'The database of DATABASE_URL'
  throw new SetupError(
    `${what} is not empty, and a restore overwrites nothing: name an empty one, or stop the service that uses this one and move it away.`,
  )
}

/**
 * Runs `work` on an empty database that is marked as being restored: `work` removes the mark in its last transaction. If it
 * does not come to that, nothing but another restore opens the database.
 */
export async function withRestoreTarget<T>(
  place: DatabaseLocation,
  work: (target: RestoreTarget) => Promise<T>,
): Promise<T> {
  const driver = await driverOf(place)
  const unlock = await driver.lock()
  try {
    assertRestorable(place, await driver.begin())
    const storage = await openStorage({ ...place, postgres: { poolSize: 4, statementMs: 0 } })
    try {
      return await work({
        storage,
        load: driver.load,
        setCounters: (tx, counters) => setCounters(tx as AnyDb, storage.dialect, counters),
      })
    } finally {
      await storage.close()
    }
  } finally {
    await unlock()
  }
}
