// The files of a release, and what makes each.
import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { hostPlatform, root } from './lockfile.ts'
import { runtimes } from './platforms.ts'
import { packageFile, packageVersion } from './versions.ts'

/** `files` are made together; `title` says what the first one is, and for whom. `platform`: of the machine code in it. */
export type Artifact = {
  kind: string
  files: string[]
  title: string
  platform?: string
  make: (folder: string) => void
}

const oneFile = Object.keys(runtimes)
export const kinds = ['npm', 'deb', 'rpm', 'agent', 'msi', 'image', ...oneFile]

export function artifactsOf(version: string, maintainer: string | undefined): Artifact[] {
  const packages = (['deb', 'rpm'] as const).flatMap((family) =>
    (['svc', 'svc-agent'] as const).map((name): Artifact => {
      const args = ['--format', family, '--name', name, ...(maintainer ? ['--maintainer', maintainer] : [])]
      return {
        kind: family,
        files: [packageFile(name, family, packageVersion(version))],
        title: `${name === 'svc' ? 'service and command line' : 'agent'}, for ${family === 'deb' ? 'Debian and Ubuntu' : 'Fedora and Red Hat'} on x86-64`,
        make: (folder) => node('packaging/build-packages.ts', '--out', folder, ...args),
      }
    }),
  )
  const tarball = (folder: string): string => join(folder, `svc-${version}.tgz`)
  const msi = `svc-agent-${version}-x64.msi`
  return [
    {
      kind: 'npm',
      files: [`svc-${version}.tgz`],
      title: 'package of npm: any platform with a Node that it allows',
      make: (folder) => {
        node('packaging/prepack.ts')
        run('npm', 'pack', '--silent', '--ignore-scripts', '--pack-destination', folder)
        // What the zlib of Node makes differs with the processor.
        const tar = join(folder, `svc-${version}.tar`)
        run('sh', '-c', 'gzip -cd "$0" >"$1" && gzip -9nc "$1" >"$0" && rm "$1"', tarball(folder), tar)
      },
    },
    ...packages,
    ...[hostPlatform, 'win32-x64'].map((platform): Artifact => {
      const file = `svc-agent-${platform}${extensionOf(platform)}`
      return {
        kind: 'agent',
        files: withSbom(file),
        title: `agent as one file, for ${platform}; releases of the agent are made of it`,
        platform,
        make: (folder) => node('build-agent.js', '--platform', platform, ...outputs(folder, file)),
      }
    }),
    {
      kind: 'msi',
      files: withSbom(msi),
      title: 'agent, for Windows on x86-64',
      platform: 'win32-x64',
      make: (folder) => node('packaging/build-msi.ts', ...outputs(folder, msi)),
    },
    {
      kind: 'image',
      files: [`svc-${version}.oci.tar`],
      title: 'container image of the service, for Linux on x86-64',
      make: (folder) => node('packaging/build-image.ts', '--out', join(folder, `svc-${version}.oci.tar`)),
    },
    ...oneFile.map((platform): Artifact => {
      const file = `svc-${version}-${platform}${extensionOf(platform)}`
      return {
        kind: platform,
        files: withSbom(file),
        title: `service and command line as one file, for ${platform}`,
        platform,
        make: (folder) => node('packaging/build-binary.ts', '--platform', platform, ...outputs(folder, file)),
      }
    }),
  ]
}

const extensionOf = (platform: string): string => (platform.startsWith('win32') ? '.exe' : '')
const sbomName = (file: string): string => `${file}.cdx.json`
const withSbom = (file: string): string[] => [file, sbomName(file)]
const outputs = (folder: string, file: string): string[] => [
  '--out',
  join(folder, file),
  '--sbom',
  join(folder, sbomName(file)),
]

/** Makes the files beside their place: one that is there is complete. */
export function makeArtifact({ files, make }: Artifact, out: string): void {
  const draft = join(out, '.draft')
  rmSync(draft, { recursive: true, force: true })
  mkdirSync(draft, { recursive: true })
  make(draft)
  for (const file of [...files].reverse()) renameSync(join(draft, file), join(out, file))
  rmSync(draft, { recursive: true })
}

function run(program: string, ...args: string[]): void {
  execFileSync(program, args, { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] })
}

export const node = (script: string, ...args: string[]): void =>
  run(process.execPath, join(root, script), ...args)
