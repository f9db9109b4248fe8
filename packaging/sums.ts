import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** SHA-256 by name of file, in the order of the names. */
export type Sums = ReadonlyMap<string, string>

export const sha256 = (content: string | Buffer): string => createHash('sha256').update(content).digest('hex')

export const sha256OfFile = (file: string): string => sha256(readFileSync(file))

export const sumsOf = (folder: string, names: Iterable<string>): Sums =>
  new Map([...names].sort().map((name) => [name, sha256OfFile(join(folder, name))]))

/** As sha256sum prints and checks them. */
export const textOfSums = (sums: Sums): string =>
  [...sums].map(([name, sha256]) => `${sha256}  ${name}\n`).join('')

/** The files of a folder that are not as its SHA256SUMS says; those that are not there are not damaged. */
export function damagedIn(folder: string): string[] {
  const list = join(folder, 'SHA256SUMS')
  if (!existsSync(list)) return []
  const expected = readFileSync(list, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => ({ sum: line.slice(0, 64), name: line.slice(66) }))
    .filter(({ name }) => existsSync(join(folder, name)))
  return expected.filter(({ sum, name }) => sha256OfFile(join(folder, name)) !== sum).map(({ name }) => name)
}
