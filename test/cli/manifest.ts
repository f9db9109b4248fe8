import { readFileSync } from 'node:fs'

/** Every command of the program, by its id, with what `C` says that is read of it. */
export const manifestCommands = <C>(): Record<string, C> => {
  const file = new URL('../../oclif.manifest.json', import.meta.url)
  return (JSON.parse(readFileSync(file, 'utf8')) as { commands: Record<string, C> }).commands
}
