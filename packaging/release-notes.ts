import type { Artifact } from './artifacts.ts'
import { hostPlatform } from './lockfile.ts'
import { nodeVersion, runtimes } from './platforms.ts'

/** `text` is the section of the changelog; `made` and `left` are what is in the release, and what is not. */
export function releaseNotes(
  version: string,
  text: string,
  made: readonly Artifact[],
  left: readonly Artifact[],
): string {
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
signed. To build the same files: \`git checkout v${version}\`, then \`npm ci && npm run release -- ${version} --skip-tests\`, and compare
\`release/${version}/SHA256SUMS\`.`,
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
