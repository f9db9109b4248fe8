/**
 * A read with a deadline, for monitoring: it has to answer even when the database does not.
 *
 * The result is undefined after `ms` milliseconds, or immediately when the read fails (`onError` gets the error). A late read
 * continues and serves the next call as well: calls do not pile up behind a database that hangs.
 */
export function withDeadline<T>(
  read: () => Promise<T>,
  ms: number,
  onError: (error: unknown) => void = () => {},
): () => Promise<T | undefined> {
  let pending: Promise<T | undefined> | undefined
  return async () => {
    pending ??= read()
      .catch((error: unknown) => {
        onError(error)
        return undefined
      })
      .finally(() => {
        pending = undefined
      })
    const { promise: late, resolve } = Promise.withResolvers<undefined>()
    const timer = setTimeout(resolve, ms, undefined)
    try {
      return await Promise.race([pending, late])
    } finally {
      clearTimeout(timer)
    }
  }
}
