import { join } from 'node:path'
import { root } from './lockfile.ts'
import { nodeVersion, runtimes } from './platforms.ts'
import { type Sums, sha256OfFile } from './sums.ts'

export type Build = {
  version: string
  commit: string
  /** A URI that names who runs the build. */
  builder: string
  /** What the caller has chosen beside the version. */
  chosen: Readonly<Record<string, unknown>>
  seconds: number
  npm: string
}

/** A statement of in-toto, with the provenance of SLSA 1: which files were made of what, how and by whom. */
export function provenanceOf(sums: Sums, { version, commit, builder, chosen, seconds, npm }: Build): string {
  const lockFile = sha256OfFile(join(root, 'package-lock.json'))
  const statement = {
    _type: 'https://in-toto.io/Statement/v1',
    subject: [...sums].map(([name, sha256]) => ({ name, digest: { sha256 } })),
    predicateType: 'https://slsa.dev/provenance/v1',
    predicate: {
      buildDefinition: {
        // docs/releasing.md says what it does.
        buildType: 'https://svc.invalid/releasing/v1',
        externalParameters: { version, ...chosen },
        internalParameters: { SOURCE_DATE_EPOCH: seconds },
        resolvedDependencies: [
          { name: 'source', digest: { gitCommit: commit } },
          { name: 'package-lock.json', digest: { sha256: lockFile } },
          ...Object.values(runtimes).map((runtime) => ({
            name: `${runtime.package}/${runtime.program}`,
            uri: `pkg:npm/${runtime.package}@${nodeVersion}`,
            digest: { sha256: runtime.sha256 },
          })),
        ],
      },
      runDetails: { builder: { id: builder, version: { node: process.versions.node, npm } } },
    },
  }
  return `${JSON.stringify(statement)}\n`
}
