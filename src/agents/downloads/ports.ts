import type { FileReply } from '../../handler.ts'

/** A file of a release as it is registered. */
type BuildFile = {
  version: string
  name: string
  /** At the release host; empty where it has none. */
  url: string
  size: number
  /** SHA-256, 64 hex characters. */
  checksum: string
}

/** Where the files of releases are. */
export type ReleaseFiles = {
  /** Agents are sent here for them, and not to where they are. */
  isLocal: boolean
  /** undefined: it is not there, or is not the one that is registered. */
  find(file: BuildFile): Promise<FileReply | undefined>
}
