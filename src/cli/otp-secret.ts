import { setTimeout as sleep } from 'node:timers/promises'
import { generateSync } from 'otplib'
import { readTextFile } from './ask.ts'
import { usageError } from './exit-codes.ts'
import { checkPrivateFile } from './files.ts'
import { printNote } from './print.ts'

/** Codes of an authenticator, each valid once. */
export type OtpGenerator = { next(): Promise<string> }

type Secret = { secret: string; period: number; digits: 6 | 7 | 8; algorithm: 'sha1' | 'sha256' | 'sha512' }

const flag = '--otp-secret-file'

/** Codes from the secret in a file, as base32 or as the otpauth:// address for an authenticator. */
export function otpGeneratorFrom(path: string, now: () => number = Date.now): OtpGenerator {
  checkPrivateFile(path, flag)
  const { period, ...secret } = parseSecret(readTextFile(path, flag).trim())
  let last: number | undefined
  return {
    async next() {
      const step = Math.floor(now() / 1000 / period)
      if (last !== undefined && step <= last) {
        printNote('That code was not accepted, perhaps because it was used already: waiting for the next one')
        const begins = (last + 1) * period * 1000
        // A timer may end a millisecond early.
        while (now() < begins) await sleep(Math.max(1, begins - now()))
      }
      const epoch = Math.floor(now() / 1000)
      last = Math.floor(epoch / period)
      return generateSync({ ...secret, period, epoch })
    },
  }
}

function parseSecret(text: string): Secret {
  const usual = { period: 30, digits: 6, algorithm: 'sha1' } as const
  const said = /^otpauth:/i.test(text) ? fieldsOf(text) : { ...usual, secret: text }
  const secret = said.secret.replaceAll(/[\s=-]/g, '').toUpperCase()
  if (/^[A-Z2-7]{16,}$/.test(secret)) return { ...said, secret }
  // The secret itself is not repeated.
  throw usageError(
    `${flag} contains no secret`,
    'base32, or otpauth://totp/…?secret=…, as svc mfa setup shows it',
  )
}

function fieldsOf(address: string): Secret {
  const url = URL.canParse(address) ? new URL(address) : undefined
  const said = url?.searchParams
  if (url?.host !== 'totp') throw usageError(`${flag} contains no otpauth://totp/ address`)
  const digits = Number(said?.get('digits') ?? 6)
  const period = Number(said?.get('period') ?? 30)
  const algorithm = (said?.get('algorithm') ?? 'sha1').toLowerCase().replace('-', '')
  const known = [6, 7, 8].includes(digits) && period > 0 && /^sha(1|256|512)$/.test(algorithm)
  if (!known) throw usageError(`${flag} contains an address with unknown settings`)
  const rest = { digits, algorithm } as Pick<Secret, 'digits' | 'algorithm'>
  return { secret: said?.get('secret') ?? '', period, ...rest }
}
