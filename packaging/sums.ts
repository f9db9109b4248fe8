import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** SHA-256 by name of file, in the order of the names. */
export type Sums = ReadonlyMap<string, string>

export function sumsOf(folder: string, names: Iterable<string>): Sums {
  const sum = (name: string): string =>
    createHash('sha256')
      .update(readFileSync(join(folder, name)))
      .digest('hex')
  return new Map([...names].sort().map((name) => [name, sum(name)]))
}

/** As sha256sum prints and checks them. */
export const textOfSums = (sums: Sums): string =>
  [...sums].map(([name, sha256]) => `${sha256}  ${name}\n`).join('')

export function isSameSums(folder: string): boolean {
  const text = readFileSync(join(folder, 'SHA256SUMS'), 'utf8')
  const names = text
    .trimEnd()
    .split('\n')
    .map((line) => line.slice(66))
  return textOfSums(sumsOf(folder, names)) === text
}
