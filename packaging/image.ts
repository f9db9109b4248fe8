// The image of the service: what is in it, and how it is run.
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { stageBase } from './image-base.ts'
import { productionPackages } from './lockfile.ts'
import type { Execution, Layer } from './oci.ts'
import { nodeFor, nodeVersion } from './platforms.ts'
import { packagesOfBuild, sbomOf } from './sbom.ts'
import { settle, stageInstallation } from './stage.ts'
import { nodeLicense } from './trees.ts'

/** Of nobody else on the machine: where user namespaces are not used, it is a user of the machine too. */
export const uid = 65_532

const files = {
  'etc/passwd': `root:x:0:0:root:/root:/sbin/nologin\nsvc:x:${uid}:${uid}:svc:/data:/sbin/nologin\n`,
  'etc/group': `root:x:0:\nsvc:x:${uid}:\n`,
  // Without it names of this machine are asked of a name server first.
  'etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
  'etc/os-release': 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nPRETTY_NAME="svc on Debian 12"\n',
}

/** What changes seldom comes first: a registry and a machine store each layer once. */
export function imageLayers(
  drafts: string,
  version: string,
  seconds: number,
  debs: string | undefined,
): Layer[] {
  const folder = (name: string): string => {
    mkdirSync(join(drafts, name))
    return join(drafts, name)
  }
  const base = folder('base')
  stageBase(base, folder('debs'), debs)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(base, path)), { recursive: true })
    writeFileSync(join(base, path), text)
  }
  mkdirSync(join(base, 'data'))
  settle(base, ['lib/x86_64-linux-gnu/ld-linux-x86-64.so.2'], seconds)
  chmodSync(join(base, 'data'), 0o700)

  const node = folder('node')
  const bin = join(node, 'usr/lib/svc/bin')
  mkdirSync(bin, { recursive: true })
  copyFileSync(nodeFor('linux-x64', drafts), join(bin, 'node'))
  copyFileSync(nodeLicense, join(bin, 'LICENSE'))
  settle(node, ['usr/lib/svc/bin/node'], seconds)

  const program = folder('program')
  const home = join(program, 'usr/lib/svc')
  stageInstallation(home, 'linux-x64')
  // Nobody finds pages in an image.
  rmSync(join(home, 'dist/man'), { recursive: true, force: true })
  const main = join(home, 'bin/svc.js')
  // There is no shell to start it.
  writeFileSync(main, readFileSync(main, 'utf8').replace(/^#!.*\n/, '#!/usr/lib/svc/bin/node\n'))
  mkdirSync(join(program, 'usr/bin'))
  symlinkSync('../lib/svc/bin/svc.js', join(program, 'usr/bin/svc'))
  const docs = join(program, 'usr/share/doc/svc')
  mkdirSync(docs, { recursive: true })
  const packages = [...packagesOfBuild(), ...productionPackages()]
  const runtime = { version: nodeVersion, file: join(bin, 'node') }
  writeFileSync(
    join(docs, 'sbom.cdx.json'),
    sbomOf({ name: 'svc', version, packages, node: runtime, seconds }),
  )
  settle(program, ['usr/lib/svc/bin/svc.js'], seconds)

  return [
    { tree: base, comment: 'packages of Debian 12', owned: { uid, folders: ['data'] } },
    { tree: node, comment: 'Node as its project has published it' },
    { tree: program, comment: 'svc' },
  ]
}

const second = 1e9

/** https://github.com/opencontainers/image-spec/blob/v1.1.0/config.md, and Healthcheck of Docker, which OCI leaves out. */
export const execution = (version: string, created: string, revision: string | undefined): Execution => ({
  User: `${uid}:${uid}`,
  ExposedPorts: { '3000/tcp': {} },
  Env: ['PATH=/usr/bin', 'HOME=/data', 'SVC_DATA_DIR=/data', 'HOST=0.0.0.0', 'PORT=3000'],
  Entrypoint: ['svc'],
  Cmd: ['serve'],
  Volumes: { '/data': {} },
  WorkingDir: '/data',
  StopSignal: 'SIGTERM',
  Healthcheck: {
    Test: ['CMD', 'svc', 'serve', 'health'],
    Interval: 30 * second,
    Timeout: 15 * second,
    // Migrations of an upgrade come before it listens.
    StartPeriod: 300 * second,
    Retries: 3,
  },
  Labels: {
    'org.opencontainers.image.title': 'svc',
    'org.opencontainers.image.description': 'Multi-tenant device management service and its command line',
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.created': created,
    'org.opencontainers.image.licenses': 'Apache-2.0',
    ...(revision !== undefined && { 'org.opencontainers.image.revision': revision }),
  },
})
