import { spawn } from 'node:child_process'
import { stat, statfs } from 'node:fs/promises'
import { constants, setPriority } from 'node:os'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseJson } from '../../core/json.ts'
import { packageModule } from '../../core/package-files.ts'
import type { Integrity } from '../db.ts'
import type { IntegrityReply } from './integrity-child.ts'

const child = fileURLToPath(packageModule('src/storage/sqlite/integrity-child.ts'))

/**
 * Most bytes that the write-ahead log may grow by during a check, or half of the free space if that is less: the log
 * cannot start over while it is read.
 */
const maxWalGrowth = 2 ** 30
const lookMs = 1000

/**
 * Checks every page of the file, in a process of its own with the lowest priority, whose only connection cannot write.
 * @throws when the check did not finish, which says nothing about the file
 */
export async function checkSqliteIntegrity(
  file: string,
  signal: AbortSignal,
  walGrowth = maxWalGrowth,
): Promise<Integrity> {
  const grown = new AbortController()
  const unwatch = await watchWal(file, walGrowth, () =>
    grown.abort(new Error('The write-ahead log grew too long beside the integrity check')),
  )
  try {
    const found = await askChild(file, AbortSignal.any([signal, grown.signal]))
    return found.length === 0 ? { verdict: 'sound' } : { verdict: 'damaged', found }
  } finally {
    unwatch()
  }
}

async function watchWal(file: string, growth: number, onGrown: () => void): Promise<() => void> {
  const size = () =>
    stat(`${file}-wal`).then(
      (wal) => wal.size,
      () => 0,
    )
  const { bavail, bsize } = await statfs(dirname(file))
  const max = (await size()) + Math.min(growth, (bavail * bsize) / 2)
  const timer = setInterval(async () => {
    if ((await size()) > max) onGrown()
  }, lookMs)
  timer.unref()
  return () => clearInterval(timer)
}

function askChild(file: string, signal: AbortSignal): Promise<string[]> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<string[]>()
  // Without the environment, which holds secrets, and options for this process.
  const helper = spawn(process.execPath, [child, file], { stdio: ['ignore', 'pipe', 'pipe'], env: {} })
  const kill = () => void helper.kill('SIGKILL')
  const abort = () => {
    kill()
    // Does not wait for its end, which a hanging disk may delay.
    reject(signal.reason)
  }
  signal.addEventListener('abort', abort, { once: true })
  process.once('exit', kill)
  lowerPriority(helper.pid)
  let output = ''
  let errors = ''
  helper.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  helper.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors = (errors + text).slice(0, 500)
  })
  helper.on('error', reject)
  helper.on('close', (code, killed) => {
    signal.removeEventListener('abort', abort)
    process.removeListener('exit', kill)
    const reply = replyIn(output)
    if (reply === undefined) {
      reject(new Error(`The integrity check ended without an answer (${killed ?? code}). ${errors}`.trim()))
    } else if ('error' in reply) reject(Object.assign(new Error(reply.error.message), reply.error))
    else resolve(reply.found)
  })
  return promise
}

function lowerPriority(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, constants.priority.PRIORITY_LOW)
  } catch {
    // It has ended already.
  }
}

/** undefined: the process ended before it had written its whole reply. */
const replyIn = (text: string) => parseJson(text) as IntegrityReply | undefined
