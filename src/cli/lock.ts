import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { configDir } from './files.ts'

/** Runs `work` under a lock of this name between processes of this configuration. A lock of a dead process is taken over. */
export async function withLock<T>(name: string, work: () => Promise<T> | T): Promise<T> {
  const { default: lockfile } = await import('proper-lockfile')
  const locks = join(configDir(), 'locks')
  mkdirSync(locks, { recursive: true, mode: 0o700 })
  const release = await lockfile.lock(join(locks, name), {
    realpath: false,
    stale: 10_000,
    retries: { retries: 150, factor: 1.05, minTimeout: 25, maxTimeout: 250, randomize: true },
  })
  try {
    return await work()
  } finally {
    await release()
  }
}
