import { SetupError } from '../core/errors.ts'
import type { StorageOptions } from './open.ts'
import type { Vacuumed, VacuumNeeds } from './sqlite/vacuum.ts'

export type { Vacuumed }

/** Writes a database in files of its own anew; `onNeeds` gets what that takes, before it begins. @throws SetupError */
export async function vacuum(
  { databaseUrl, dataDir }: Pick<StorageOptions, 'databaseUrl' | 'dataDir'>,
  onNeeds: (needs: VacuumNeeds) => void,
): Promise<Vacuumed> {
  if (databaseUrl !== undefined) {
    throw new SetupError(
      'Postgres uses room of deleted rows again by itself. To shrink its files: vacuum (full, analyze), which locks each table.',
    )
  }
  const { vacuumNeeds, vacuumSqlite } = await import('./sqlite/vacuum.ts')
  onNeeds(await vacuumNeeds(dataDir))
  return vacuumSqlite(dataDir)
}
