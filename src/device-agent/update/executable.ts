import { accessSync, constants, realpathSync } from 'node:fs'
import { dirname } from 'node:path'

/** How this program was built: `package` is a checkout or an installed package. */
export type Build = { kind: 'executable' | 'script' | 'package'; version: string }

/** This program, as it was started. */
export type Executable = {
  version: string
  /** Its single file; undefined when it has several. */
  file: string | undefined
  /** Starts the same program again, with the same arguments. */
  restartCommand: { file: string; args: string[] }
}

/** `script`: path of the bundle, if it is one. */
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

/** Why this program cannot replace itself; undefined if it can. */
export function updateBlocker({ file }: Executable): string | undefined {
  if (file === undefined) return 'it does not run as a single file'
  try {
    accessSync(dirname(file), constants.W_OK)
    return undefined
  } catch (error) {
    return `${dirname(file)} cannot be written to (${(error as NodeJS.ErrnoException).code})`
  }
}
