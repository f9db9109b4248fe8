// The packages that an installation needs beside the build.
import { cpSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

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
