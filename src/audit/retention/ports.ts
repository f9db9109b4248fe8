/** Object storage for what retention removes. */
export type Archive = {
  /**
   * Stores an object; resolves when the storage has confirmed that it holds exactly these bytes.
   * @throws ArchiveFailure when it did not, or when that is unknown
   */
  put(object: { key: string; body: Buffer; sha256: Buffer; type: string }): Promise<void>
}

/** The message is for the operator: what failed, and what to mend. */
export class ArchiveFailure extends Error {
  override name = 'ArchiveFailure'
}
