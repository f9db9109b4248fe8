import { readFile } from 'node:fs/promises'
import type { SoftwareReport } from '../agents/contract.ts'

export const dpkgStatusFile = '/var/lib/dpkg/status'

/** Installed packages, where the machine keeps them in a file that can be read without running anything. */
export async function readSoftware(): Promise<SoftwareReport[]> {
  return parseDpkgStatus(await readFile(dpkgStatusFile, 'utf8'))
}

/** The installed packages in the text of a dpkg status file (deb-control(5), dpkg(1) on states). */
export function parseDpkgStatus(text: string): SoftwareReport[] {
  return text.split(/\n\n+/).flatMap((stanza) => {
    const field = (name: string): string =>
      new RegExp(`^${name}: *(.*)$`, 'm').exec(stanza)?.[1]?.trim() ?? ''
    const name = field('Package')
    if (name === '' || !/\sinstalled$/.test(field('Status'))) return []
    const publisher = field('Maintainer').slice(0, 255)
    return [
      { name: name.slice(0, 500), version: field('Version').slice(0, 255), ...(publisher && { publisher }) },
    ]
  })
}
