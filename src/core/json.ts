/** What stands in JSON text; undefined where it is none. */
export function jsonOf(text: string | Buffer): unknown {
  try {
    return JSON.parse(text.toString())
  } catch {
    return undefined
  }
}
