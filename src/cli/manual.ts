import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../core/package-files.ts'

const folder = (): string => fileURLToPath(packageFile('man/'))

/** Names of the man pages about subjects, such as `svc-audit`. */
export const manualPages = (): string[] => readdirSync(folder()).map((file) => file.split('.')[0]!)

/** The text of such a page; undefined when there is none of this name. `man` shows the same. */
export function manualPage(name: string): string | undefined {
  const file = readdirSync(folder()).find((one) => one.split('.')[0] === name)
  return file && readFileSync(`${folder()}${file}`, 'utf8')
}
