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
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))

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

/** Copies the built program. */
export function stageProgram(folder: string): void {
  for (const part of parts) {
    mkdirSync(dirname(join(folder, part)), { recursive: true })
    // The build keeps its notes in files with a dot.
    const filter = (path: string): boolean => !/\/dist\/\.[^/]*$/.test(path)
    cpSync(join(root, part), join(folder, part), { recursive: true, filter })
  }
}

/** Folders of the packages that an installation has, as package-lock.json says. Those of other platforms are not installed. */
export function productionPackages(): string[] {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean }>
  }
  return Object.entries(packages)
    .filter(
      ([path, { dev, devOptional }]) => path !== '' && !dev && !devOptional && existsSync(join(root, path)),
    )
    .map(([path]) => path)
}

/** Copies the packages, as npm installs them. */
export function stagePackages(folder: string): void {
  for (const path of productionPackages()) {
    const nested = (file: string) => file.slice(join(root, path).length).includes('/node_modules/')
    cpSync(join(root, path), join(folder, path), { recursive: true, filter: (file) => !nested(file) })
  }
}

/** Removes files of the packages that an installation on this platform does not read. */
export function trimPackages(folder: string, platform: string): void {
  const modules = join(folder, 'node_modules')
  for (const file of filesIn(modules)) {
    const isOther = file.includes('/better-sqlite3/prebuilds/') && !file.endsWith(`/${platform}.node`)
    if (isOther || (unread.test(file) && !license.test(file))) rmSync(file)
  }
  removeEmpty(modules)
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
