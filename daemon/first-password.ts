import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/*
 * The generated password of the first administrator. The transaction that creates them writes it to a file: a start that fails
 * after that, or is killed, would have told it to nobody.
 */

const fileIn = (dataDir: string): string => join(dataDir, 'first-password')

/** Returns why the file cannot be written, if so. */
export function keepFirstPassword(dataDir: string, password: string): string | undefined {
  try {
    // Of an earlier database that is gone.
    forgetFirstPassword(dataDir)
    writeFileSync(fileIn(dataDir), `${password}\n`, { mode: 0o600, flag: 'wx', flush: true })
    return undefined
  } catch (error) {
    return `${fileIn(dataDir)} cannot be written: ${(error as Error).message}`
  }
}

/** The file, until whoever has signed in deletes it. */
export const firstPasswordFile = (dataDir: string): string | undefined =>
  existsSync(fileIn(dataDir)) ? fileIn(dataDir) : undefined

export const forgetFirstPassword = (dataDir: string): void => rmSync(fileIn(dataDir), { force: true })
