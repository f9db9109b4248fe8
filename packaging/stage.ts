// The tree of an installation: the build, and the packages that it needs beside it.
import {
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  lutimesSync,
  mkdirSync,
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

/** Read by people who build programs, by compilers of native code, and by debuggers. */
const unread =
  /\.(d\.[cm]?ts|map|md|markdown|gypi?|cc?|cpp|h|hpp)$|\/better-sqlite3\/(deps|src)\/|\/node-addon-api\//i
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
  const folders = globSync('**', { cwd: folder, withFileTypes: true }).filter((one) => one.isDirectory())
  const paths = folders.map(({ parentPath, name }) => join(parentPath, name))
  for (const path of paths.sort().reverse()) {
    if (globSync('*', { cwd: path }).length === 0) rmSync(path, { recursive: true })
  }
}

export function filesIn(folder: string): string[] {
  return globSync('**', { cwd: folder, withFileTypes: true })
    .filter((one) => one.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort()
}

/** Gives all files one time and the same modes, whoever builds when: two builds of one source have the same bytes. */
export function settle(folder: string, programs: readonly string[], seconds: number): void {
  const isProgram = new Set(programs.map((program) => join(folder, program)))
  const entries = globSync('**', { cwd: folder, withFileTypes: true })
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name)
    if (!entry.isSymbolicLink()) chmodSync(path, entry.isDirectory() || isProgram.has(path) ? 0o755 : 0o644)
    lutimesSync(path, seconds, seconds)
  }
  chmodSync(folder, 0o755)
  lutimesSync(folder, seconds, seconds)
}
