import { spawnSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, rmdirSync, rmSync, writeSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { inject, onTestFinished } from 'vitest'

const run = (command: string, ...args: string[]) => spawnSync(command, args, { encoding: 'utf8' })

/** Why this machine can mount no file system for a test; undefined where it can. */
export function noDisk(): string | undefined {
  const probe = join(inject('temporaryFolder'), 'may-mount')
  mkdirSync(probe, { recursive: true })
  const { status, stderr, error } = run('mount', '-t', 'tmpfs', '-o', 'size=64k', 'svc-test', probe)
  if (status !== 0) return `no file system can be mounted here: ${error?.message ?? stderr.trim()}`
  run('umount', probe)
  return undefined
}

export type SmallDisk = {
  path: string
  /** Fills the free space, except for so many bytes. */
  fill(leave?: number): void
  /** Frees what `fill` took. */
  empty(): void
  /** From now on nothing can be written, as after an error of the disk; nobody may have a file open for writing. */
  setReadOnly(): void
}

/** A real file system of so many bytes; it is unmounted when the test ends. */
export async function smallDisk(bytes: number): Promise<SmallDisk> {
  // Not within the folder of the tests, which the user of Postgres may not enter.
  const path = await mkdtemp(join(dirname(inject('temporaryFolder')), 'svc-disk-'))
  const { status, stderr } = run('mount', '-t', 'tmpfs', '-o', `size=${bytes},mode=0755`, 'svc-test', path)
  if (status !== 0) throw new Error(`no small disk: ${stderr}`)
  // Lazily: a process that still uses it keeps it for as long as it lives, and no longer.
  onTestFinished(() => {
    run('umount', '-l', path)
    rmdirSync(path)
  })
  const ballast = join(path, 'ballast')
  return {
    path,
    fill(leave = 0) {
      const file = openSync(ballast, 'a')
      const piece = Buffer.alloc(65_536)
      try {
        for (;;) writeSync(file, piece)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
      } finally {
        closeSync(file)
      }
      if (leave > 0) run('truncate', '-s', `-${leave}`, ballast)
    },
    empty: () => rmSync(ballast, { force: true }),
    setReadOnly() {
      const remounted = run('mount', '-o', 'remount,ro', path)
      if (remounted.status !== 0) throw new Error(`not read-only: ${remounted.stderr}`)
    },
  }
}
