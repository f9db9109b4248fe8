import { hash, verify } from '@node-rs/argon2'

/** argon2id, 19 MiB, 2 passes, 1 lane; hashed on the thread pool, off the event loop. */
const cost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 }

export const hashPassword = (password: string): Promise<string> => hash(password, cost)

let standIn: Promise<string> | undefined

/**
 * Whether the password is right. Without a hash (unknown user, single sign-on account) it does the same
 * work against a stand-in and says no, so that nobody can tell the cases apart.
 */
export async function checkPassword(hashed: string | null, password: string): Promise<boolean> {
  standIn ??= hashPassword('no account has this password')
  const right = await verify(hashed ?? (await standIn), password)
  return right && hashed !== null
}
