import { hash } from '@node-rs/argon2'

/** argon2id, 19 MiB, 2 passes, 1 lane; hashed on the thread pool, off the event loop. */
const cost = { memoryCost: 19_456, timeCost: 2, parallelism: 1 }

/** Hashes computed at once: each takes a core, and the disk and name lookups need threads of the pool as well. */
const maxConcurrent = 4
let running = 0
const waiting: (() => void)[] = []

export async function withHashSlot<T>(work: () => Promise<T>): Promise<T> {
  if (running < maxConcurrent) running += 1
  else await new Promise<void>((resolve) => waiting.push(resolve))
  try {
    return await work()
  } finally {
    const next = waiting.shift()
    if (next) next()
    else running -= 1
  }
}

export const hashPassword = (password: string): Promise<string> => withHashSlot(() => hash(password, cost))
