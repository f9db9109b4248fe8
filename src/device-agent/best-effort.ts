/**
 * The result of `read`, or undefined when it fails or takes longer than `ms`. A machine is described by the parts
 * that can be read: one that cannot is absent and does not affect the others.
 */
export async function bestEffort<T>(read: () => T | Promise<T>, ms = 10_000): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined)
  })
  try {
    return await Promise.race([(async () => read())(), late])
  } catch {
    // What fails is absent, like what is too slow.
    return undefined
  } finally {
    clearTimeout(timer)
  }
}
