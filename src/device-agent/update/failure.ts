/**
 * Why an update does not go on. `refused`: it is not what it should be. `failed`: not here, not now. `later`: whatever is
 * in the way may be gone at the next offer, so nobody is told. `never`: this agent cannot update itself.
 */
export class UpdateFailure extends Error {
  override name = 'UpdateFailure'
  readonly kind: 'refused' | 'failed' | 'later' | 'never'

  constructor(kind: UpdateFailure['kind'], reason: string) {
    super(reason)
    this.kind = kind
  }
}

const readOnly = new Set(['EROFS', 'EACCES'])
/** Another program is looking at the file: on-access scanners do, and running programs. */
const transientCodes = new Set(['ETXTBSY', 'EBUSY', 'EPERM'])

/** What the file system said, in these terms. */
export function toUpdateFailure(error: unknown): UpdateFailure {
  if (error instanceof UpdateFailure) return error
  const { code = '', message } = error as NodeJS.ErrnoException
  if (transientCodes.has(code)) return new UpdateFailure('later', message)
  return new UpdateFailure(readOnly.has(code) ? 'never' : 'failed', message)
}
