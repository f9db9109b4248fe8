import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { programName } from './config.ts'

type Started = {
  url: string
  email: string
  dataDir: string
  /** Of the administrator that was just created. */
  password: string | undefined
}

/**
 * What a person reads after a start. A generated password is said on a terminal alone: elsewhere standard error becomes a journal,
 * which many read and nobody clears, and the password goes to a file of this user.
 */
export function welcome({ url, email, dataDir, password }: Started, onTerminal: boolean): string {
  const at = url === 'http://127.0.0.1:3000' ? '' : ` --url ${url}`
  const signIn = `  ${programName()} login --email ${email}${at}`
  const end = `\n\nData: ${dataDir}\n\n`
  if (password === undefined) return `\nSign in from another terminal:\n\n${signIn}${end}`
  const created = '\nA system administrator was created.'
  if (onTerminal)
    return (
      `${created} The password is displayed only once:\n\n` +
      `  e-mail    ${email}\n  password  ${password}\n\nSign in from another terminal:\n\n${signIn}${end}`
    )
  const file = join(dataDir, 'first-password')
  try {
    // Of an earlier database that is gone.
    rmSync(file, { force: true })
    writeFileSync(file, `${password}\n`, { mode: 0o600, flag: 'wx', flush: true })
  } catch (error) {
    return `${created} Its password is lost, since ${file} cannot be written: ${(error as Error).message}\n\nSet another one with ${programName()} password forgot ${email}${at}${end}`
  }
  return (
    `${created} The password is in a file that only this user can read:\n\n` +
    `  e-mail    ${email}\n  password  ${file}\n\n` +
    `Sign in, then delete the file:\n\n${signIn} --password-stdin < ${file}${end}`
  )
}
