/** A place in a text, counted from 1. */
type Place = { line: number; column: number }

/**
 * Bytes as text, with a byte order mark as it stands; otherwise where the first byte is that is not UTF-8. With a stand-in for
 * such bytes another text would be sent, without a word: of a script in Latin-1, or of a secret that is no text.
 */
export function decodeUtf8(bytes: Uint8Array): { text: string } | { invalidAt: Place } {
  const text = decoded(bytes)
  return text === undefined ? { invalidAt: firstInvalid(bytes) } : { text }
}

/** undefined: it is not UTF-8. `isPart`: the last character may be cut. */
function decoded(bytes: Uint8Array, isPart = false): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isPart })
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

function firstInvalid(bytes: Uint8Array): Place {
  // The longest beginning that is text, but for a last character that is cut.
  let [valid, invalid] = [0, bytes.length + 1]
  while (invalid - valid > 1) {
    const middle = (valid + invalid) >> 1
    if (decoded(bytes.subarray(0, middle), true) === undefined) invalid = middle
    else valid = middle
  }
  const before = decoded(bytes.subarray(0, valid), true)!
  const lines = before.split('\n')
  return { line: lines.length, column: lines.at(-1)!.length + 1 }
}
