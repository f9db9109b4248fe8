import { recordAudit } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { SetupError } from '../../src/core/errors.ts'
import { systemClock } from '../../src/core/time.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import { type DatabaseMove, readMove, unblockWrites } from '../../src/storage/copy/moved.ts'
import { noDatabase } from '../../src/storage/no-database.ts'
import { databaseExists, openStorage } from '../../src/storage/open.ts'
import { databaseOf } from '../config.ts'

/** Lets a database that was moved take writes again. @throws SetupError when it was not moved */
export async function reopen(options: { 'data-dir'?: string | undefined }): Promise<DatabaseMove> {
  const place = databaseOf(options)
  if (!(await databaseExists(place))) throw noDatabase(place.dataDir)
  const storage = await openStorage({ ...place, postgres: { poolSize: 2 } })
  try {
    const move = await readMove(storage)
    if (move === undefined) throw new SetupError('This database was not moved, and takes writes')
    const entry = toDraftEntry(
      {
        orgId: null,
        actorType: 'system',
        actorId: null,
        actorEmail: null,
        action: 'database.reopen',
        resourceType: 'database',
        resourceId: null,
        resourceName: null,
        details: move,
        ipAddress: null,
        userAgent: null,
        result: 'success',
      },
      systemClock(),
    )
    await storage.write(async (tx) => {
      await unblockWrites(tx as AnyDb, storage)
      await recordAudit(tx, entry)
    })
    return move
  } finally {
    await storage.close()
  }
}
