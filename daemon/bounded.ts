/**
 * A read with a deadline, for those who watch the service: it has to answer just when the database does not.
 *
 * The result gives undefined after `ms` milliseconds, or at once when the read fails (`onError` gets the error). A read that
 * is late goes on, and serves the next call as well: calls do not pile up behind a database that hangs.
 */
export function bounded<T>(
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
