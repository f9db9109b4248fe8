import { hash } from 'node:crypto'
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { monotonicClock } from '../../../src/device-agent/clock.ts'
import type { AgentEvent } from '../../../src/device-agent/events.ts'
import { settingsStore } from '../../../src/device-agent/settings.ts'
import { openSpool } from '../../../src/device-agent/spool/spool.ts'
import { stagedFile } from '../../../src/device-agent/update/files.ts'
import { type Journal, openUpdateJournal } from '../../../src/device-agent/update/journal.ts'
import { binarySwapper } from '../../../src/device-agent/watchdog/binary-swap.ts'
import { Child } from '../../../src/device-agent/watchdog/child.ts'
import { stagedSignal, supervise } from '../../../src/device-agent/watchdog/supervisor.ts'

let stateDir: string
let file: string
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'svc-rescue-'))
  file = join(stateDir, 'svc-agent')
})
afterEach(() => rmSync(stateDir, { recursive: true, force: true }))

const sha256 = (text: string): string => hash('sha256', text, 'hex')
function put(path: string, text: string): void {
  writeFileSync(path, text)
  chmodSync(path, 0o755)
}

/** A watchdog of version 2.0.0 whose agent always ends at once. */
function watchdog(signal: AbortSignal) {
  const events: AgentEvent[] = []
  const report = (event: AgentEvent): void => void events.push(event)
  const journal = openUpdateJournal(stateDir)
  const spool = openSpool(join(stateDir, 'spool'))
  const staged = stagedSignal()
  const again = { file: '/bin/sh', args: ['-c', 'exit 7'] }
  const installation = binarySwapper({
    file,
    version: '2.0.0',
    journal,
    spool,
    clock: monotonicClock,
    now: () => new Date(),
    report,
    trialSeconds: () => 5,
    start: (path) => new Child({ file: path, args: [] }, 'trial', process.env),
    signal,
  })
  const settings = settingsStore(stateDir)
  const run = () =>
    supervise({
      start: () => new Child(again, 'agent', process.env),
      settings: settings.load,
      clock: { ...monotonicClock, sleep: (ms, stop) => monotonicClock.sleep(ms / 20, stop) },
      report,
      signal,
      heartbeats: { heard: () => {} },
      installation,
      onTrial: false,
      staged,
    })
  return { events, journal, spool, staged, run }
}

const begin = (journal: Partial<Journal>) => openUpdateJournal(stateDir).change(journal)
const never = new AbortController().signal

describe('an interrupted update', () => {
  const pending = { version: '3.0.0', from: '2.0.0', sha256: sha256('new'), tries: 1 }
  const runBriefly = async () => {
    const stop = new AbortController()
    const one = watchdog(stop.signal)
    const running = one.run()
    await new Promise((resolve) => setTimeout(resolve, 100))
    stop.abort()
    await running
    return one
  }

  test('in its first trial is staged again', async () => {
    put(file, 'old')
    put(stagedFile(file), 'new')
    begin({ pending: { ...pending, state: 'trying', pid: 1 } })
    const { journal, spool } = await runBriefly()
    expect(journal.load().pending).toEqual({ ...pending, state: 'staged' })
    expect(spool.next()).toBeUndefined()
  })

  test('in its second trial is given up, and reported', async () => {
    put(file, 'old')
    begin({ pending: { ...pending, state: 'trying', tries: 2 } })
    const { journal, spool } = await runBriefly()
    expect(journal.load()).toMatchObject({ failed: { '3.0.0': { reason: 'its trial was cut short' } } })
    expect(journal.load().pending).toBeUndefined()
    expect(spool.next()!.records).toMatchObject([{ kind: 'update', outcome: { state: 'rolled_back' } }])
  })

  test('during its installation is done if this is the version, and staged again otherwise', async () => {
    put(file, 'new')
    begin({ pending: { ...pending, version: '2.0.0', from: '1.0.0', state: 'installing' } })
    const first = await runBriefly()
    expect(first.journal.load().pending).toBeUndefined()
    expect(first.events).toContainEqual({ event: 'update', state: 'installed', version: '2.0.0' })
    begin({ pending: { ...pending, state: 'installing' } })
    expect((await runBriefly()).journal.load().pending).toMatchObject({ state: 'staged', version: '3.0.0' })
  })

  test('during a restore is completed, whether or not the backup was already in place', async () => {
    const restoring = {
      ...pending,
      state: 'restoring',
      version: '1.0.0',
      from: '2.0.0',
      sha256: sha256('good'),
    } as const
    const backup = { version: '1.0.0', sha256: sha256('good'), spent: false }
    put(file, 'bad')
    put(join(stateDir, 'svc-agent.backup'), 'good')
    begin({ pending: { ...restoring, reason: 'it broke' }, backup })
    expect(await watchdog(never).run()).toBe('become')
    expect(readFileSync(file, 'utf8')).toBe('good')
    const { journal, spool } = await runBriefly()
    expect(journal.load()).toMatchObject({
      backup: { spent: true },
      failed: { '2.0.0': { reason: 'it broke' } },
    })
    expect(spool.next()!.records).toMatchObject([
      { kind: 'update', outcome: { targetVersion: '2.0.0', state: 'rolled_back', reason: 'it broke' } },
    ])
  })
})

describe('an agent that cannot be started', () => {
  test('is replaced by the backup after three crashes, if that is intact and unused', async () => {
    for (const [content, spent] of [
      ['tampered', false],
      ['good', true],
    ] as const) {
      put(file, 'bad')
      put(join(stateDir, 'svc-agent.backup'), content)
      begin({ backup: { version: '1.0.0', sha256: sha256('good'), spent } })
      const stop = new AbortController()
      const { events, run } = watchdog(stop.signal)
      const running = run()
      while (events.length < 4) await new Promise((resolve) => setTimeout(resolve, 20))
      stop.abort()
      expect(await running).toEqual({ exit: 0 })
      expect(readFileSync(file, 'utf8')).toBe('bad')
    }
    put(join(stateDir, 'svc-agent.backup'), 'good')
    begin({ backup: { version: '1.0.0', sha256: sha256('good'), spent: false } })
    const { events, run } = watchdog(never)
    expect(await run()).toBe('become')
    expect(readFileSync(file, 'utf8')).toBe('good')
    expect(events.map(({ event }) => event)).toEqual(['restart', 'restart'])
  })

  test('does not prevent its watchdog from trying another version', async () => {
    const content = '#!/bin/sh\nexit 3\n'
    put(file, 'bad')
    put(stagedFile(file), content)
    const stop = new AbortController()
    const { events, journal, staged, run } = watchdog(stop.signal)
    const running = run()
    while (events.length < 1) await new Promise((resolve) => setTimeout(resolve, 5))
    begin({
      pending: { state: 'staged', version: '3.0.0', from: '2.0.0', sha256: sha256(content), tries: 0 },
    })
    staged.add()
    while (!journal.load().failed['3.0.0']) await new Promise((resolve) => setTimeout(resolve, 20))
    stop.abort()
    await running
    expect(journal.load().failed['3.0.0']!.reason).toBe('exit code 3 before its first heartbeat')
  })
})
