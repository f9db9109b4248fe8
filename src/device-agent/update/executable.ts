import { accessSync, constants, realpathSync } from 'node:fs'
import { dirname } from 'node:path'

/** How this program was put together: `package` is a checkout or an installed package. */
export type Build = { kind: 'executable' | 'script' | 'package'; version: string }

/** This program, as it is started. */
export type Executable = {
  version: string
  /** The one file it is made of; undefined where there are many. */
  file: string | undefined
  /** Starts the same again, with the same arguments. */
  restartCommand: { file: string; args: string[] }
}

/** `script`: where the bundle lies, if it is one. */
export function currentExecutable({ kind, version }: Build, script?: string): Executable {
  const args = process.argv.slice(2)
  if (kind === 'package') {
    return {
      version,
      file: undefined,
      restartCommand: { file: process.execPath, args: [...process.execArgv, ...process.argv.slice(1)] },
    }
  }
  const file = realpathSync(kind === 'executable' ? process.execPath : script!)
  return { version, file, restartCommand: { file, args } }
}

/** Why this program cannot take the place of itself; undefined where it can. */
export function updateBlocker({ file }: Executable): string | undefined {
  if (file === undefined) return 'it does not run as a single file'
  // The file of a program that runs cannot be replaced there.
  if (process.platform === 'win32') return 'not on Windows'
  try {
    accessSync(dirname(file), constants.W_OK)
    return undefined
  } catch (error) {
    return `${dirname(file)} cannot be written to (${(error as NodeJS.ErrnoException).code})`
  }
}
