import type { Migration, MigrationFile } from '../src/storage/migrate.ts'
import * as all from './all.ts'

/** In the order of their numbers. A landed migration is never edited, renamed or moved. */
export const migrations: readonly Migration[] = Object.entries<MigrationFile>(all)
  .map(([name, file]) => ({ ...file, name }))
  .sort((a, b) => (a.name < b.name ? -1 : 1))
