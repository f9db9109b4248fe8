import { createHash, type Hash } from 'node:crypto'
import { SetupError } from '../../src/core/errors.ts'
import type { TableShape } from '../../src/storage/backup/catalog.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import type { Cell } from '../../src/storage/backup/row-pages.ts'
import type { Db } from '../../src/storage/open.ts'
import { readCheckpointCopies } from '../backup/archive-lines.ts'
import { ChainCheck, verifyingKeys } from '../backup/chain-check.ts'
import { rowLines } from '../backup/format.ts'
import { knownKeys } from '../config.ts'
import { unmatchedKeys } from '../key-fingerprints.ts'

type Digest = { rows: number; sha256: string }

/** Digests the rows of all tables as they pass by, and verifies the audit chains in them. */
export async function createCopyVerifier(db: Db, { dataDir }: DatabaseLocation) {
  const known = knownKeys({ 'data-dir': dataDir })
  const prints = await db.selectFrom('key_prints').select(['name', 'print']).execute()
  const chains = new ChainCheck(verifyingKeys(known, unmatchedKeys(prints, known)))
  for (const { path, content } of await readCheckpointCopies(dataDir)) chains.file(path, content)
  const digests: Record<string, { rows: number; hash: Hash }> = {}
  return {
    seen({ name, columns }: TableShape, rows: readonly Cell[][]): void {
      digests[name] ??= { rows: 0, hash: createHash('sha256') }
      digests[name].rows += rows.length
      digests[name].hash.update(rowLines(rows))
      if (!name.startsWith('audit_')) return
      chains.rows(
        name,
        rows.map((row) => Object.fromEntries(columns.map((column, at) => [column.name, row[at]]))),
      )
    },
    /** @throws SetupError when a chain is broken */
    end(): Record<string, Digest> {
      chains.end()
      const [fault] = chains.faults
      if (fault !== undefined) {
        throw new SetupError(
          `The database is not copied, and takes writes again: ${fault}. See svc audit verify, or restore a backup from before that.`,
        )
      }
      return Object.fromEntries(
        Object.entries(digests).map(([name, { rows, hash }]) => [name, { rows, sha256: hash.digest('hex') }]),
      )
    },
  }
}
