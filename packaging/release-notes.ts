import { shWord } from '../src/cli/shell-words.ts'
import { type Artifact, kinds } from './artifacts.ts'
import { hostPlatform } from './lockfile.ts'
import { nodeVersion } from './platforms.ts'

type Release = {
  version: string
  /** The section of the changelog. */
  text: string
  artifacts: readonly Artifact[]
  /** Those of the artifacts that are in this release. */
  madeKinds: readonly string[]
  maintainer: string | undefined
  hasProvenance: boolean
}

export function releaseNotes(release: Release): string {
  const { version, text, artifacts, madeKinds, maintainer, hasProvenance } = release
  const isMade = ({ kind }: Artifact): boolean => madeKinds.includes(kind)
  const [made, left] = [artifacts.filter(isMade), artifacts.filter((one) => !isMade(one))]
  const others = made.filter(({ platform }) => platform !== undefined && platform !== hostPlatform)
  const parts = [
    `# svc ${version}`,
    text,
    '## Files',
    made.map(({ files, title }) => `- \`${files[0]}\`: ${title}`).join('\n'),
    `Each has its bill of materials (CycloneDX): in the package of npm as \`dist/sbom.cdx.json\`, in those of Debian and RPM and in the image in
\`/usr/share/doc\`, and beside each single file.${hasProvenance ? ' `provenance.intoto.jsonl` says what they were made of.' : ''}`,
    '## Check what you have',
    checks(hasProvenance),
    `The first line prints the key: it has to be the one that you know from elsewhere. Without \`SHA256SUMS.sig\` this release is not
signed. docs/operations/install.md says what each line shows.`,
    '## Build the same files',
    `    git checkout v${version}
    npm ci
    ${rebuilding(version, madeKinds, maintainer)}
    diff release/${version}/SHA256SUMS PUBLISHED/SHA256SUMS`,
    '`PUBLISHED` is the folder with the files of this release. docs/releasing.md says which tools have to be the same.',
    ...(others.length + left.length > 0 ? ['## Known limits'] : []),
    ...others.map(
      ({ files, platform }) =>
        `\`${files[0]}\` was made on ${hostPlatform}, of Node ${nodeVersion} and the machine code that the registry of npm has for ${platform}. Its
format and contents were checked; it was not started on a machine of that kind.`,
    ),
    ...left.map(({ files }) => `\`${files[0]}\` is not in this release.`),
  ]
  return `${parts.join('\n\n')}\n`
}

/** As docs/operations/install.md has them too. */
const checks = (hasProvenance: boolean): string =>
  [
    'openssl pkey -pubin -in release-key.pem -outform DER | tail -c 32 | base64',
    ...verifying('SHA256SUMS'),
    'sha256sum --check --ignore-missing SHA256SUMS',
    ...(hasProvenance ? [...verifying('provenance.intoto.jsonl'), showingCommit] : []),
  ]
    .map((line) => `    ${line}`)
    .join('\n')

const verifying = (file: string): string[] => [
  `base64 -d ${file}.sig >signature`,
  `openssl pkeyutl -verify -rawin -pubin -inkey release-key.pem -in ${file} -sigfile signature`,
]
const showingCommit = `grep -o '"gitCommit":"[0-9a-f]*"' provenance.intoto.jsonl`

/** With what was chosen for this release and is in the bytes of its files: `--only` is in these notes, which have a sum too. */
function rebuilding(version: string, madeKinds: readonly string[], maintainer: string | undefined): string {
  const only = madeKinds.length === kinds.length ? [] : madeKinds.flatMap((kind) => ['--only', kind])
  const by = maintainer === undefined ? [] : ['--maintainer', shWord(maintainer)]
  return ['npm run release --', version, '--skip-tests', ...only, ...by].join(' ')
}
