/** A release as it is announced; nobody has believed anything of it yet. */
export type PublishedRelease = {
  tag: string
  notes: string | null
  /** The exact bytes, and their signature in base64; undefined: it has none. */
  manifest: Buffer | undefined
  signature: string | undefined
  /** A file of it by its name; undefined: it is not there. */
  file(name: string): Promise<ReleaseAsset | undefined>
}
/** `url` is empty where it is at no address of its own; `size` is undefined where nobody says. */
export type ReleaseAsset = { url: string; size: number | undefined }

/** Where releases are announced. */
export type ReleaseSource = {
  /** Of this version, else the latest that is stable. @throws ReleaseFailure; so may `file` */
  find(version: string | undefined): Promise<PublishedRelease>
}

/** The message is what the host said, or why it could not be asked. */
export class ReleaseFailure extends Error {
  override name = 'ReleaseFailure'
  readonly kind: 'host' | 'absent'
  /** What to look at. */
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
