import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'

/** Of the properties of a document, by [MS-OLEPS]: the identifier of their set, and those that differ between two builds. */
const format = Buffer.from('e0859ff2f94f6810ab9108002b27b3d9', 'hex')
const [revision, created, saved] = [9, 12, 13]
const [text, time] = [30, 64]

/**
 * Sets the code of the package and the times in the summary of an MSI, which wixl makes at random and of its clock. Each has the same
 * length as before: nothing moves. @throws Error for a file that is not as wixl writes it
 */
export function settleSummary(file: string, code: string, seconds: number): void {
  const content = readFileSync(file)
  const at = content.indexOf(format)
  if (at === -1 || content.indexOf(format, at + 1) !== -1)
    throw new Error(`${file} has no summary, or several`)
  // The set of properties, which is alone, begins 28 bytes before; its offset comes after its identifier.
  const set = at - 28 + content.readUInt32LE(at + format.length)
  const found = new Map<number, number>()
  for (let n = 0; n < content.readUInt32LE(set + 4); n += 1) {
    const entry = set + 8 + 8 * n
    found.set(content.readUInt32LE(entry), set + content.readUInt32LE(entry + 4))
  }
  const opened = openSync(file, 'r+')
  try {
    const put = (property: number, type: number, value: Buffer): void => {
      const place = found.get(property)
      const start = type === text ? 8 : 4
      if (place === undefined || content.readUInt32LE(place) !== type)
        throw new Error(`The summary of ${file} is not as wixl writes it`)
      writeSync(opened, value, 0, value.length, place + start)
    }
    put(revision, text, Buffer.from(`{${code.toUpperCase()}}`))
    // In tenths of a microsecond since 1601.
    const filetime = Buffer.alloc(8)
    filetime.writeBigUInt64LE((BigInt(seconds) + 11_644_473_600n) * 10_000_000n)
    for (const property of [created, saved]) put(property, time, filetime)
  } finally {
    closeSync(opened)
  }
}
