import { statSync } from 'node:fs'
import { basename, dirname, resolve } from 'node:path'
import { SetupError } from '../../src/core/errors.ts'
import { backupBucketOf } from '../config.ts'
import type { ArchiveStore } from './archive-store.ts'
import { bucketStore } from './bucket-store.ts'
import { folderStore } from './folder-store.ts'

const isUrl = (place: string): boolean => /^s3:/i.test(place)

/** The store that a directory or URL names. @throws SetupError */
export const storeAt = (target: string): ArchiveStore =>
  isUrl(target) ? bucketStore(backupBucketOf(target)) : folderStore(resolve(target))

/** An archive by its path or URL. @throws SetupError */
export function storedArchive(place: string): { store: ArchiveStore; name: string } {
  const name = basename(place)
  if (!isUrl(place)) return { store: storeAt(dirname(resolve(place))), name }
  if (isTarget(place))
    throw new SetupError(`${place} names no archive: its name ends with .backup or .backup.age`)
  return { store: storeAt(place.slice(0, -name.length - 1)), name }
}

/** Whether archives are to be found below it, rather than an archive there. */
export const isTarget = (place: string): boolean =>
  isUrl(place)
    ? !/\.backup(\.age)?$/.test(place)
    : (statSync(place, { throwIfNoEntry: false })?.isDirectory() ?? false)

/** The size of an archive, for its progress. @throws SetupError when there is none */
export async function archiveBytes(place: string): Promise<number> {
  const { store, name } = storedArchive(place)
  return store.bytesOf(name)
}
