import { hash, verify } from '@node-rs/argon2'

/** argon2id, 19 MiB, 2 passes, 1 lane; hashed on the thread pool, off the event loop. */
const cost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 }

/** So many at once: each takes a core, and threads of the pool are wanted for the disk and for names as well. */
const most = 4
let running = 0
const waiting: (() => void)[] = []

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running < most) running += 1
  else await new Promise<void>((resolve) => waiting.push(resolve))
  try {
    return await work()
  } finally {
    const next = waiting.shift()
    if (next) next()
    else running -= 1
  }
}

export const hashPassword = (password: string): Promise<string> => inTurn(() => hash(password, cost))

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
