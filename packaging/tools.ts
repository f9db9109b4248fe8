import { spawnSync } from 'node:child_process'

/** Programs that are not of npm, with their packages of Debian and what is made with each. */
const tools = [
  { program: 'dpkg-deb', package: 'dpkg', kinds: ['deb', 'image'] },
  { program: 'rpmbuild', package: 'rpm', kinds: ['rpm'] },
  { program: 'wixl', package: 'wixl', kinds: ['msi'] },
  { program: 'msibuild', package: 'msitools', kinds: ['msi'] },
]

/** What has to be installed before these kinds are made, each with what to do. */
export function missingTools(wanted: readonly string[]): string[] {
  return tools
    .filter(({ program, kinds }) => {
      const isUsed = kinds.some((kind) => wanted.includes(kind))
      return isUsed && spawnSync(program, ['--version']).error !== undefined
    })
    .map((one) => `${one.program} is not installed: apt-get install ${one.package}`)
}
