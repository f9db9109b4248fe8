import { hash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'
import type { DatabaseLocation } from '../../src/storage/backup/restore-target.ts'
import { traitsAt } from '../../src/storage/traits.ts'
import { writeFileAtomically } from '../backup/atomic-write.ts'
import { isMovedFile } from '../backup/contents.ts'
import { secretsFileName } from '../secrets/file.ts'

/* The files beside the database: they go along to another data directory, and stay where they are when it is the same. */

const folders = ['checkpoints', 'outbox'] as const

function* movedFiles(dataDir: string): Generator<string> {
  if (existsSync(join(dataDir, secretsFileName))) yield secretsFileName
  for (const folder of folders) {
    const names = existsSync(join(dataDir, folder)) ? readdirSync(join(dataDir, folder)) : []
    yield* names.map((name) => `${folder}/${name}`).filter(isMovedFile)
  }
}

const isElsewhere = (from: DatabaseLocation, to: DatabaseLocation): boolean =>
  traitsAt(to).hasOwnFiles && resolve(from.dataDir) !== resolve(to.dataDir)

/** @throws SetupError when the target directory has the files of another installation */
export function assertFilesFit(from: DatabaseLocation, to: DatabaseLocation): void {
  if (!isElsewhere(from, to)) return
  const foreign = [...movedFiles(to.dataDir)].find(
    (path) => !isSame(join(from.dataDir, path), join(to.dataDir, path)),
  )
  if (foreign === undefined) return
  throw new SetupError(
    `${join(to.dataDir, foreign)} is of another installation: move it away, or name another directory.`,
  )
}

function isSame(one: string, other: string): boolean {
  if (statSync(one, { throwIfNoEntry: false }) === undefined) return false
  return hash('sha256', readFileSync(one), 'hex') === hash('sha256', readFileSync(other), 'hex')
}

/** Returns how many files went along. */
export async function copyFiles(from: DatabaseLocation, to: DatabaseLocation): Promise<number> {
  if (!isElsewhere(from, to)) return 0
  let files = 0
  for (const path of movedFiles(from.dataDir)) {
    await writeFileAtomically(join(to.dataDir, path), await readFile(join(from.dataDir, path)))
    files += 1
  }
  return files
}
