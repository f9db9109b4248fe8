import { verify } from '@node-rs/argon2'
import { hashPassword, inTurn } from '../password.ts'

let standIn: Promise<string> | undefined

/**
 * Whether the password is right. Without a hash (unknown user, single sign-on account) it does the same
 * work against a stand-in and says no, so that nobody can tell the cases apart.
 */
export async function checkPassword(hashed: string | null, password: string): Promise<boolean> {
  standIn ??= hashPassword('no account has this password')
  const against = hashed ?? (await standIn)
  const right = await inTurn(() => verify(against, password))
  return right && hashed !== null
}
