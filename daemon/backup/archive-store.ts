import type { Readable } from 'node:stream'

export type StoredArchive = { name: string; place: string; bytes: number }

/** A directory, or a prefix of object storage. @throws SetupError; deleting in a directory throws what the file system does */
export type ArchiveStore = {
  /** The path or URL of an archive, by which people and commands name it. */
  placeOf(name: string): string
  /** Archives by their names, the newest first. */
  list(): Promise<StoredArchive[]>
  /** The archive is there under its name once it is complete; none is overwritten. */
  write(name: string, chunks: AsyncIterable<Uint8Array>): Promise<{ bytes: number }>
  bytesOf(name: string): Promise<number>
  /** `bytes`: only the first ones. */
  read(name: string, bytes?: number): Promise<Readable>
  remove(name: string): Promise<void>
  /** Removes what killed backups left, unless it changed after this time. */
  sweep(before: Date): Promise<void>
}
