/**
 * What `read` gives, or undefined when it fails or takes longer than `ms`. A machine is described by
 * the parts it tells about: one that cannot be read is absent and takes nothing else with it.
 */
export async function bestEffort<T>(read: () => T | Promise<T>, ms = 10_000): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined)
  })
  try {
    return await Promise.race([(async () => read())(), late])
  } catch {
    return undefined
  } finally {
    clearTimeout(timer)
  }
}

/** The record without its absent parts. */
export function withoutUndefined<T extends object>(record: T): T {
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)) as T
}
