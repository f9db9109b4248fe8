import type { Logger } from 'pino'
import { SetupError } from '../../src/core/errors.ts'
import { hasUsers } from '../../src/identity/store.ts'
import type { Db, Storage } from '../../src/storage/open.ts'

/**
 * A secret that is not set, and the one that serves as it: who changes that one changes both. New installations have one of each;
 * those from before go on, and are told the way out.
 */
export type Fallback = { name: 'ENROLLMENT_KEY_PEPPER' | 'AUDIT_SIGNING_KEY'; from: string }

type With = { fallbacks: readonly Fallback[] }

/** What a person reads: what is so, why it matters, and the way out. */
export function describeFallback({ name, from }: Fallback): {
  message: string
  reason: string
  remedy: string
} {
  if (name === 'AUDIT_SIGNING_KEY')
    return {
      message: `AUDIT_SIGNING_KEY is not set: it is derived from ${from}`,
      reason: `A change of ${from} changes the key of the audit log too, and whoever learns ${from} can sign audit logs`,
      remedy:
        'set AUDIT_SIGNING_KEY to a new one (openssl rand -base64 32); the service signs the link from the former public key',
    }
  return {
    message: `ENROLLMENT_KEY_PEPPER is not set: ${from} serves as it`,
    reason: `A change of ${from} changes the pepper too, and without its _PREVIOUS every enrollment key becomes invalid`,
    remedy: `set ENROLLMENT_KEY_PEPPER_PREVIOUS to the present value of ${from}, and ENROLLMENT_KEY_PEPPER to a new one (openssl rand -base64 32)`,
  }
}

const sentenceOf = (one: Fallback): string => {
  const { message, reason, remedy } = describeFallback(one)
  return `${message}. ${reason}: ${remedy}`
}

export function warnOfFallbacks({ fallbacks }: With, log: Logger): void {
  for (const one of fallbacks) log.warn(sentenceOf(one))
}

/** @throws SetupError in production, when nothing was made yet with what serves as another secret */
export async function assertOwnSecrets(
  { read }: Pick<Storage, 'read'>,
  { fallbacks, production }: With & { production: boolean },
): Promise<void> {
  if (!production || fallbacks.length === 0 || (await isInUse(read))) return
  const names = fallbacks.map(({ name }) => name).join(' and ')
  throw new SetupError(
    `A new database in production needs each secret of its own: set ${names} (openssl rand -base64 32 prints one), also as NAME_FILE`,
  )
}

/** Whether a service was started on the database before. */
async function isInUse(db: Db): Promise<boolean> {
  const recorded = await db.selectFrom('key_prints').select('name').limit(1).executeTakeFirst()
  return recorded !== undefined || hasUsers(db)
}

/** @throws SetupError with the way out, for a secret that another one serves as */
export function assertNoFallback({ fallbacks }: With, name: string): void {
  const found = fallbacks.find((one) => one.name === name)
  if (found !== undefined) throw new SetupError(sentenceOf(found))
}
