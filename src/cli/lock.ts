import { join } from 'node:path'
import { makeFolder } from '../core/make-folder.ts'
import { CliError } from './exit-codes.ts'
import { configDir } from './files.ts'

/** Runs `work` under a lock of this name between processes of this configuration. A lock of a dead process is taken over. */
export async function withLock<T>(name: string, work: () => Promise<T> | T): Promise<T> {
  const release = await lock(join(configDir(), 'locks'), name)
  try {
    return await work()
  } finally {
    await release()
  }
}

async function lock(folder: string, name: string): Promise<() => Promise<void>> {
  const { default: lockfile } = await import('proper-lockfile')
  try {
    makeFolder(folder)
    return await lockfile.lock(join(folder, name), {
      realpath: false,
      stale: 10_000,
      retries: { retries: 150, factor: 1.05, minTimeout: 25, maxTimeout: 250, randomize: true },
    })
  } catch (error) {
    throw new CliError(`Cannot lock ${join(folder, name)}: ${(error as Error).message}`, { cause: error })
  }
}
