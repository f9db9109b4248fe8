import type { FileReply } from '../../handler.ts'

/** A registered file of a release. */
type BuildFile = {
  version: string
  name: string
  /** Address at the release host; empty where it has none. */
  url: string
  size: number
  /** SHA-256, 64 hex characters. */
  checksum: string
}

/** Source of release files. */
export type ReleaseFiles = {
  /** Agents download from this service instead of the release host. */
  isLocal: boolean
  /** undefined when the file is missing or differs from the registered one. */
  find(file: BuildFile): Promise<FileReply | undefined>
}
