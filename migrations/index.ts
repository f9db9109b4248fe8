import type { Migration } from '../src/storage/migrate.ts'
import * as foundation from './0001_foundation.ts'
import * as apiKeys from './0002_api_keys.ts'

/** In the order they are applied. A landed migration is never edited, renamed or moved. */
export const migrations: readonly Migration[] = [
  { name: '0001_foundation', up: foundation.up },
  { name: '0002_api_keys', up: apiKeys.up },
]
