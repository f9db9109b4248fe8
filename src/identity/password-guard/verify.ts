import { verify } from '@node-rs/argon2'
import { hashPassword, withHashSlot } from '../password-hash.ts'

let dummyHash: Promise<string> | undefined

/**
 * Whether the password is right. Without a hash (unknown user, single sign-on account) it does the same work
 * against a dummy hash and returns false, so that a caller cannot tell the cases apart.
 */
export async function verifyPassword(hashed: string | null, password: string): Promise<boolean> {
  dummyHash ??= hashPassword('no account has this password')
  const against = hashed ?? (await dummyHash)
  const right = await withHashSlot(() => verify(against, password))
  return right && hashed !== null
}
