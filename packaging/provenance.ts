import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { CliError } from '../src/cli/exit-codes.ts'
import { root } from './lockfile.ts'
import { nodeVersion, runtimes } from './platforms.ts'
import { type Sums, sha256OfFile } from './sums.ts'

export type Build = {
  version: string
  commit: string
  /** The address of the source. */
  repository: string
  /** A URI that names who runs the build; by default a person. */
  builder: string | undefined
  /** What the caller has chosen beside the version. */
  chosen: Readonly<Record<string, unknown>>
  seconds: number
  npm: string
}

/** The address of the source, for people and for git, as package.json names it; undefined where it names none. @throws where it is another form */
export function repositoryAddress(): string | undefined {
  const { repository } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    repository?: string | { url?: string }
  }
  const named = typeof repository === 'object' ? repository.url : repository
  if (named === undefined) return undefined
  const address = named.replace(/^git\+/, '').replace(/(\.git|\/)$/, '')
  if (/^https:\/\/\S+$/.test(address) && URL.canParse(address)) return address
  throw new CliError(`repository in package.json is an address as https://HOST/PATH, not ${named}`)
}

/**
 * A statement of in-toto, with the provenance of SLSA 1: which files were made of what, how and by whom. Sections of
 * docs/releasing.md say what its URIs stand for.
 */
export function provenanceOf(sums: Sums, build: Build): string {
  const { version, commit, repository, builder, chosen, seconds, npm } = build
  const page = `${repository}/blob/HEAD/docs/releasing.md`
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [...sums].map(([name, sha256]) => ({ name, digest: { sha256 } })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        buildType: `${page}#build-type-v1`,
        externalParameters: { version, ...chosen },
        internalParameters: { SOURCE_DATE_EPOCH: seconds },
        resolvedDependencies: [
          {
            name: 'source',
            uri: `git+${repository}@refs/tags/v${version}`,
            digest: { gitCommit: commit },
          },
          {
            name: 'package-lock.json',
            digest: { sha256: sha256OfFile(join(root, 'package-lock.json')) },
          },
          ...Object.values(runtimes).map((runtime) => ({
            name: `${runtime.package}/${runtime.program}`,
            uri: `pkg:npm/${runtime.package}@${nodeVersion}`,
            digest: { sha256: runtime.sha256 },
          })),
        ],
      },
      runDetails: {
        builder: { id: builder ?? `${page}#built-by-hand`, version: { node: process.versions.node, npm } },
      },
    },
  }
  return `${JSON.stringify(statement)}\n`
}
