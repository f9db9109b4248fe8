// The tree of an installation: the build, and the packages that it needs beside it.
import {
  chmodSync,
  cpSync,
  type Dirent,
  existsSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { hostPlatform, productionPackages, root } from './lockfile.ts'
import { machineCodeOf } from './machine-code.ts'
import { fetchLocked } from './platforms.ts'

/** What `npm pack` packs. */
const parts = [
  'bin/svc.js',
  'dist',
  'migrations',
  'man',
  'oclif.manifest.json',
  'package.json',
  'LICENSE',
  'CHANGELOG.md',
]

/** Read by people who build programs, by compilers of native code, and by debuggers; and a program that nobody starts. */
const unread =
  /\/\.[^/]+$|\.(d\.[cm]?ts|map|md|markdown|gypi?|cc?|cpp|h|hpp)$|\/better-sqlite3\/(deps|src)\/|\/node-addon-api\/|\/systeminformation\/lib\/cli\.js$/i
const license = /\/(licen[cs]e|notice|copying)[^/]*$/i

/** Puts the program and the packages that it needs on a platform into a folder, and nothing that is for another one. */
export function stageInstallation(folder: string, platform: string): void {
  stageProgram(folder)
  stagePackages(folder, platform)
  trimPackages(folder, platform)
  checkMachineCode(folder, platform)
}

/** Copies the built program. */
function stageProgram(folder: string): void {
  for (const part of parts) {
    mkdirSync(dirname(join(folder, part)), { recursive: true })
    // The build keeps its notes in files with a dot. Each kind of package has a bill of materials of its own.
    const filter = (path: string): boolean => !/\/dist\/(\.[^/]*|sbom\.cdx\.json)$/.test(path)
    cpSync(join(root, part), join(folder, part), { recursive: true, filter })
  }
}

/** Copies the packages, as npm installs them on a platform. */
export function stagePackages(folder: string, platform = hostPlatform): void {
  for (const path of productionPackages(platform)) {
    if (!existsSync(join(root, path))) {
      fetchLocked(path, join(folder, path))
      continue
    }
    const nested = (file: string) => file.slice(join(root, path).length).includes('/node_modules/')
    cpSync(join(root, path), join(folder, path), { recursive: true, filter: (file) => !nested(file) })
  }
}

/** Removes files of the packages that an installation on a platform does not read. @throws where machine code for it is missing */
export function trimPackages(folder: string, platform: string): void {
  const modules = join(folder, 'node_modules')
  for (const file of filesIn(modules)) {
    const isOther = file.includes('/better-sqlite3/prebuilds/') && !file.endsWith(`/${platform}.node`)
    if (isOther || (unread.test(file) && !license.test(file))) rmSync(file)
  }
  removeEmpty(modules)
  const sqlite = join(modules, 'better-sqlite3')
  if (existsSync(join(sqlite, 'prebuilds', `${platform}.node`))) return
  const { version } = JSON.parse(readFileSync(join(sqlite, 'package.json'), 'utf8'))
  throw new Error(`better-sqlite3 ${version} has no machine code for ${platform}: svc cannot be made for it`)
}

/** @throws where a file of machine code is one for another platform */
export function checkMachineCode(folder: string, platform: string): void {
  for (const file of filesIn(folder).filter((one) => one.endsWith('.node'))) {
    const found = machineCodeOf(file)
    if (found !== platform)
      throw new Error(`${file} is machine code for ${found ?? 'nothing known'}, not ${platform}`)
  }
}

function removeEmpty(folder: string): void {
  for (const entry of entriesIn(folder).reverse()) {
    const path = join(entry.parentPath, entry.name)
    if (entry.isDirectory() && readdirSync(path).length === 0) rmSync(path, { recursive: true })
  }
}

/** Also those whose names begin with a dot; a folder is before what is in it. */
function entriesIn(folder: string): Dirent[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
  const pathOf = ({ parentPath, name }: Dirent): string => join(parentPath, name)
  return entries.sort((a, b) => (pathOf(a) < pathOf(b) ? -1 : 1))
}

export function filesIn(folder: string): string[] {
  return entriesIn(folder)
    .filter((one) => one.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
}

/** Gives all files one time and the same modes, whoever builds when: two builds of one source have the same bytes. */
export function settle(folder: string, programs: readonly string[], seconds: number): void {
  const isProgram = new Set(programs.map((program) => join(folder, program)))
  for (const entry of entriesIn(folder)) {
    const path = join(entry.parentPath, entry.name)
    if (!entry.isSymbolicLink()) chmodSync(path, entry.isDirectory() || isProgram.has(path) ? 0o755 : 0o644)
    lutimesSync(path, seconds, seconds)
  }
  chmodSync(folder, 0o755)
  lutimesSync(folder, seconds, seconds)
}
