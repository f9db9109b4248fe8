import { programName } from './config.ts'
import { firstPasswordFile } from './first-password.ts'
import type { FirstAdministrator } from './serve.ts'

type Started = {
  /** PUBLIC_URL, else where it listens. */
  url: string
  email: string
  dataDir: string
  first: FirstAdministrator | undefined
}

/**
 * What a person reads after a start. A generated password is said on a terminal alone: elsewhere standard error becomes a journal,
 * which many read and nobody clears, and the password stays in a file of this user.
 */
export function startMessage({ url, email, dataDir, first }: Started, onTerminal: boolean): string {
  const at = url === 'http://127.0.0.1:3000' ? '' : ` --url ${url}`
  const signIn = `  ${programName()} login --email ${email}${at}`
  const end = `\n\nData: ${dataDir}\n\n`
  const created = '\nA system administrator was created.'
  if (first && onTerminal)
    return (
      `${created} The password is displayed only once:\n\n` +
      `  e-mail    ${email}\n  password  ${first.password}\n\nSign in from another terminal:\n\n${signIn}${end}`
    )
  if (first?.notKept !== undefined)
    return `${created} Its password is lost, since ${first.notKept}\n\nSet another one with ${programName()} password forgot ${email}${at}${end}`
  const file = firstPasswordFile(dataDir)
  if (file === undefined) return `\nSign in from another terminal:\n\n${signIn}${end}`
  return (
    `${first ? `${created} The password` : '\nThe password of the first system administrator'} is in a file that only this user can read:\n\n` +
    `  e-mail    ${email}\n  password  ${file}\n\n` +
    `Sign in, then delete the file:\n\n${signIn} --password-stdin < ${file}${end}`
  )
}
