// Where the documents name the files and the image of a release, each with the version in its name.
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { artifactsOf } from './artifacts.ts'
import { root } from './lockfile.ts'
import { packageVersion } from './versions.ts'

const namesOf = (version: string): string[] => [
  `svc:${version}`,
  ...artifactsOf(version, undefined)
    .flatMap(({ files }) => files)
    .filter((name) => [version, packageVersion(version)].some((one) => name.includes(one))),
]

const anyVersion = String.raw`\d+\.\d+\.\d+(?:[-~][\w.-]*?\w)??`
/** In the order of `namesOf`; the end of the version is where the rest of a name begins. */
const patterns = namesOf('VERSION').map((name) => {
  const pattern = name.replaceAll('.', '\\.').replace('VERSION', anyVersion)
  return new RegExp(`(?<![\\w-])${pattern}(?![\\w-]|\\.\\w)`, 'g')
})

/** The text with the names of another version. */
export function renamed(text: string, version: string): string {
  const names = namesOf(version)
  return patterns.reduce((result, pattern, n) => result.replaceAll(pattern, () => names[n]!), text)
}

/** The documents that say which file to take. */
export const documents = globSync(['README.md', 'docs/operations/**/*.{md,yml}'], { cwd: root })
  .sort()
  .filter((file) => {
    const text = readFileSync(join(root, file), 'utf8')
    return patterns.some((pattern) => text.search(pattern) !== -1)
  })
