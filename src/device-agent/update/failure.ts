/**
 * Why an update does not continue. `refused`: it is not trustworthy. `failed`: it cannot be installed here or now.
 * `later`: the cause may be gone at the next offer, so it is not reported. `never`: this agent cannot update itself.
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
/** Another program uses the file, such as an on-access scanner or a running program. */
const transientCodes = new Set(['ETXTBSY', 'EBUSY', 'EPERM'])

/** Maps an error of the file system to an UpdateFailure. */
export function toUpdateFailure(error: unknown): UpdateFailure {
  if (error instanceof UpdateFailure) return error
  const { code = '', message } = error as NodeJS.ErrnoException
  if (transientCodes.has(code)) return new UpdateFailure('later', message)
  return new UpdateFailure(readOnly.has(code) ? 'never' : 'failed', message)
}
