import { shWord } from '../src/cli/shell-words.ts'
import { type Artifact, kinds } from './artifacts.ts'
import { hostPlatform } from './lockfile.ts'
import { nodeVersion, runtimes } from './platforms.ts'

type Release = {
  version: string
  /** The section of the changelog. */
  text: string
  artifacts: readonly Artifact[]
  /** Those of the artifacts that are in this release. */
  madeKinds: readonly string[]
  maintainer: string | undefined
}

export function releaseNotes({ version, text, artifacts, madeKinds, maintainer }: Release): string {
  const isMade = ({ kind }: Artifact): boolean => madeKinds.includes(kind)
  const [made, left] = [artifacts.filter(isMade), artifacts.filter((one) => !isMade(one))]
  const others = made.filter(({ kind }) => runtimes[kind] && kind !== hostPlatform)
  const parts = [
    `# svc ${version}`,
    text,
    '## Files',
    made.map(({ files, title }) => `- \`${files[0]}\`: ${title}`).join('\n'),
    `Each has its bill of materials (CycloneDX): in the package of npm as \`dist/sbom.cdx.json\`, in those of Debian and RPM and in the image in
\`/usr/share/doc\`, and beside each single file. \`provenance.intoto.jsonl\` says what they were made of.`,
    '## Check what you have',
    `    sha256sum --check --ignore-missing SHA256SUMS
    base64 -d SHA256SUMS.sig >SHA256SUMS.bin
    openssl pkeyutl -verify -rawin -pubin -inkey release-key.pem -in SHA256SUMS -sigfile SHA256SUMS.bin`,
    `Compare \`release-key.pem\` with the key that you know, or have it from elsewhere. Without \`SHA256SUMS.sig\` this release is not
signed.`,
    '## Build the same files',
    `    git checkout v${version}
    npm ci
    ${rebuilding(version, madeKinds, maintainer)}
    diff release/${version}/SHA256SUMS PUBLISHED/SHA256SUMS`,
    '`PUBLISHED` is the folder with the files of this release. docs/releasing.md says which tools have to be the same.',
    ...(others.length + left.length > 0 ? ['## Known limits'] : []),
    ...others.map(
      ({ files, kind }) =>
        `\`${files[0]}\` was made on ${hostPlatform}, of Node ${nodeVersion} and the machine code that the registry of npm has for ${kind}. Its
format and contents were checked; it was not started on a machine of that kind.`,
    ),
    ...left.map(({ files }) => `\`${files[0]}\` is not in this release.`),
  ]
  return `${parts.join('\n\n')}\n`
}

/** With what was chosen for this release and is in the bytes of its files: `--only` is in these notes, which have a sum too. */
function rebuilding(version: string, madeKinds: readonly string[], maintainer: string | undefined): string {
  const only = madeKinds.length === kinds.length ? [] : madeKinds.flatMap((kind) => ['--only', kind])
  const by = maintainer === undefined ? [] : ['--maintainer', shWord(maintainer)]
  return ['npm run release --', version, '--skip-tests', ...only, ...by].join(' ')
}
