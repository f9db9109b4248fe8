/** A published release; nothing about it is verified yet. */
export type PublishedRelease = {
  tag: string
  notes: string | null
  /** The exact bytes, and their signature in base64; undefined when it has none. */
  manifest: Buffer | undefined
  signature: string | undefined
  /** A file of the release by its name; undefined when it is missing. */
  file(name: string): Promise<ReleaseAsset | undefined>
}
/** `url` is empty where the file has no separate address; `size` is undefined where it is unknown. */
export type ReleaseAsset = { url: string; size: number | undefined }

/** Source of published releases. */
export type ReleaseSource = {
  /** The release of this version, or the latest stable one. @throws ReleaseFailure; so may `file` */
  find(version: string | undefined): Promise<PublishedRelease>
}

/** The message is the host's answer, or why it could not be reached. */
export class ReleaseFailure extends Error {
  override name = 'ReleaseFailure'
  readonly kind: 'host' | 'absent'
  /** What to check. */
  readonly hint: string | undefined

  constructor(
    kind: ReleaseFailure['kind'],
    message: string,
    { hint, cause }: { hint?: string; cause?: unknown } = {},
  ) {
    super(message, { cause })
    this.kind = kind
    this.hint = hint
  }
}
