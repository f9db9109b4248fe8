// What package-lock.json says of the packages that the program is made of.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('..', import.meta.url))

export type Locked = {
  version: string
  integrity?: string
  license?: string
  dev?: boolean
  devOptional?: boolean
  optional?: boolean
  os?: string[]
  cpu?: string[]
  libc?: string[]
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
}

/** By the folder of each package, such as `node_modules/pg/node_modules/split2`. */
export function lockedPackages(): Record<string, Locked> {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const { '': _, ...others } = packages as Record<string, Locked>
  return others
}

export const hostPlatform = `${process.platform}-${process.arch}`

/** Folders of the packages that an installation has. npm has installed those of this platform; of another one, the lock file says it. */
export function productionPackages(platform = hostPlatform): string[] {
  const locked = lockedPackages()
  return productionOfAllPlatforms().filter((path) =>
    platform === hostPlatform ? existsSync(join(root, path)) : isFor(locked[path]!, platform),
  )
}

/** The same, and of each platform those that npm would choose from. */
export function productionOfAllPlatforms(): string[] {
  return Object.entries(lockedPackages())
    .filter(([, { dev, devOptional }]) => !dev && !devOptional)
    .map(([path]) => path)
}

/** Linux is one with glibc. */
function isFor({ os, cpu, libc }: Locked, platform: string): boolean {
  const [system, processor] = platform.split('-') as [string, string]
  return (
    (!os || os.includes(system)) && (!cpu || cpu.includes(processor)) && (!libc || libc.includes('glibc'))
  )
}

/** The folder of the package that a file belongs to; undefined for a file of this project. */
export function packageFolderOf(file: string): string | undefined {
  return /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0]
}

/** `@scope/name` of a folder. */
export const nameOf = (folder: string): string =>
  folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length)
