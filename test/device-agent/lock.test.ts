import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Problem } from '../../src/core/errors.ts'
import { lockStateDir } from '../../src/device-agent/lock.ts'

let stateDir: string
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'svc-agent-'))
})
afterEach(() => rmSync(stateDir, { recursive: true, force: true }))

const never = new AbortController().signal
const unexpected = (problem: Problem): void => expect.unreachable(problem.message)
const lock = () => lockStateDir(stateDir, unexpected, never)

const holdLock = `
  const { lockStateDir } = await import(process.argv[1])
  await lockStateDir(process.argv[2], () => {}, new AbortController().signal)
  console.log('locked')
  setInterval(() => {}, 1000)
`

/** Another process that holds the lock until it is killed. */
async function otherAgent() {
  const module = new URL('../../src/device-agent/lock.ts', import.meta.url).href
  const child = spawn(process.execPath, ['--input-type=module', '-e', holdLock, module, stateDir])
  await once(child.stdout, 'data')
  return {
    pid: child.pid,
    async kill() {
      child.kill('SIGKILL')
      await once(child, 'exit')
    },
  }
}

test('a second agent on a state directory is refused at once, with the pid of the first', async () => {
  const other = await otherAgent()
  try {
    const started = performance.now()
    await expect(lock()).rejects.toMatchObject({
      code: 'conflict',
      message: `Another agent (process ${other.pid}) is running with the state directory ${stateDir}`,
    })
    expect(performance.now() - started).toBeLessThan(2000)
  } finally {
    await other.kill()
  }
})

test('the lock of a killed agent expires', async () => {
  const other = await otherAgent()
  await other.kill()
  const unlock = await lock()
  await unlock()
})

test('an agent that ended releases the directory to the next one', async () => {
  const unlock = await lock()
  await unlock()
  const again = await lock()
  await again()
})

test('an agent that loses its lock is notified', async () => {
  const lost = await new Promise<Problem>((resolve, reject) => {
    lockStateDir(stateDir, resolve, never).then(() => rmdirSync(join(stateDir, 'agent.lock')), reject)
  })
  expect(lost).toMatchObject({ code: 'conflict', message: expect.stringContaining(stateDir) })
})

test('an abort signal ends the wait for a lock', async () => {
  const other = await otherAgent()
  await other.kill()
  const stop = new AbortController()
  const waiting = lockStateDir(stateDir, unexpected, stop.signal)
  setTimeout(() => stop.abort(), 50)
  await expect(waiting).rejects.toMatchObject({ name: 'AbortError' })
})

test('a directory that cannot be locked is an error that names it', async () => {
  const file = join(stateDir, 'file')
  writeFileSync(file, '')
  await expect(lockStateDir(join(file, 'below'), unexpected, never)).rejects.toThrow(join(file, 'below'))
})
