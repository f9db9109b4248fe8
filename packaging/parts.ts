// The packages that a build consists of, with their licenses.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export type Package = { name: string; version: string; license: string | undefined; folder: string }

/** The packages that these files belong to, each once, by name and version. `files` are relative to `root`. */
export function packagesOf(root: string, files: Iterable<string>): Package[] {
  const found = new Map<string, Package>()
  for (const file of files) {
    const folder = folderOf(root, file)
    if (folder === undefined) continue
    const { name, version, license } = JSON.parse(
      readFileSync(join(folder, 'package.json'), 'utf8'),
    ) as Package
    found.set(`${name}@${version}`, { name, version, license, folder })
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
}

/** The folder of the package that a file is in; undefined for a file of this project. */
function folderOf(root: string, file: string): string | undefined {
  const at = file.lastIndexOf('node_modules/')
  if (at === -1) return undefined
  let folder = join(root, dirname(file))
  // A package may have a package.json in each folder that says how its files are loaded, without a name.
  while (!namesPackage(folder)) folder = dirname(folder)
  return folder
}

function namesPackage(folder: string): boolean {
  const file = join(folder, 'package.json')
  if (!existsSync(file)) return false
  const { name, version } = JSON.parse(readFileSync(file, 'utf8'))
  return name !== undefined && version !== undefined
}

/** One text with the license of each: most of them have to be handed on with the code. */
export function licensesOf(packages: readonly Package[]): string {
  return packages
    .map(({ name, version, license, folder }) => {
      const files = readdirSync(folder)
        .filter((file) => /^(licen[cs]e|copying|notice)\b/i.test(file))
        .sort()
      const texts = files.map((file) => readFileSync(join(folder, file), 'utf8').trim())
      return [`${name} ${version} (${license ?? 'see below'})`, ...texts].join('\n\n')
    })
    .join(`\n\n${'-'.repeat(80)}\n\n`)
    .concat('\n')
}
