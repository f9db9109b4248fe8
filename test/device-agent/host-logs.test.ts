import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { readHostLogs } from '../../src/device-agent/host-logs.ts'
import { readJournal } from '../../src/device-agent/journal.ts'
import { type FilePositions, readLogFiles } from '../../src/device-agent/log-files.ts'
import { logPositionStore } from '../../src/device-agent/log-position.ts'
import { eventLogs } from '../../src/logs/events/contract.ts'

let home: string
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'svc-logs-'))
})
afterEach(() => rmSync(home, { recursive: true, force: true }))

const now = new Date('2026-03-01T12:00:00.000Z')
const record = (n: number, more: Record<string, unknown> = {}) => ({
  __CURSOR: `cursor-${n}`,
  __REALTIME_TIMESTAMP: `${now.getTime() - 60_000 + n}000`,
  PRIORITY: '4',
  SYSLOG_FACILITY: '3',
  SYSLOG_IDENTIFIER: 'systemd',
  MESSAGE: `message ${n}`,
  ...more,
})
const lines = (...records: object[]) => records.map((one) => `${JSON.stringify(one)}\n`).join('')

/** A journalctl that runs this script, and records its arguments. */
function journalctl(script: string): string {
  const file = join(home, 'journalctl')
  writeFileSync(file, `#!/bin/sh\necho "$*" >> "${home}/asked"\n${script}\n`)
  chmodSync(file, 0o755)
  return file
}
function printing(text: string): string {
  writeFileSync(join(home, 'printed'), text)
  return journalctl(`cat "${home}/printed"`)
}
const asked = () => readFileSync(join(home, 'asked'), 'utf8').trim().split('\n')

/** Whether the service accepts the events, every field included. */
const isAccepted = (events: unknown[]) => eventLogs.submit.body.safeParse({ events }).error === undefined

describe('the journal', () => {
  test('is read from its latest records first, then after the cursor', async () => {
    const command = printing(lines(record(1), record(2)))
    const first = await readJournal(undefined, 100, command)
    expect(first?.cursor).toBe('cursor-2')
    expect(first?.events.map(({ message }) => message)).toEqual(['message 1', 'message 2'])
    await readJournal(first?.cursor, 100, command)
    const all = '--output=json --no-pager --quiet --priority=notice'
    expect(asked()).toEqual([`${all} --lines=100`, `${all} --after-cursor=cursor-2`])
  })

  test('keeps the cursor when nothing is new', async () => {
    expect(await readJournal('cursor-9', 100, printing(''))).toEqual({ events: [], cursor: 'cursor-9' })
  })

  test('is read up to the limit, however much it prints', async () => {
    const command = journalctl(
      `n=0; while :; do n=$((n+1)); echo '{"__CURSOR":"c'$n'","__REALTIME_TIMESTAMP":"1772366400000000","MESSAGE":"x"}'; done`,
    )
    const read = await readJournal('c0', 100, command)
    expect([read?.events.length, read?.cursor]).toEqual([100, 'c100'])
  })

  test('is read from its latest records again when it does not know the cursor', async () => {
    writeFileSync(join(home, 'printed'), lines(record(5)))
    const command = journalctl(`case "$*" in *after-cursor*) exit 1;; esac; cat "${home}/printed"`)
    expect(await readJournal('gone', 100, command)).toMatchObject({
      cursor: 'cursor-5',
      events: [{ message: 'message 5' }],
    })
  })

  test('maps records to level, category and source', async () => {
    const kinds = [
      record(1, { PRIORITY: '2', _TRANSPORT: 'kernel', SYSLOG_FACILITY: '0', SYSLOG_IDENTIFIER: 'kernel' }),
      record(2, {
        PRIORITY: '3',
        SYSLOG_FACILITY: '10',
        SYSLOG_IDENTIFIER: 'sshd',
        _SYSTEMD_UNIT: 'ssh.service',
      }),
      record(3, {
        PRIORITY: '5',
        SYSLOG_FACILITY: '1',
        SYSLOG_IDENTIFIER: undefined,
        _COMM: 'backup',
        _PID: '7',
      }),
      record(4, { PRIORITY: undefined, SYSLOG_FACILITY: undefined, SYSLOG_IDENTIFIER: '' }),
    ]
    const read = await readJournal(undefined, 100, printing(lines(...kinds)))
    expect(read?.events).toMatchObject([
      { level: 'critical', category: 'hardware', source: 'kernel', timestamp: '2026-03-01T11:59:00.001Z' },
      { level: 'error', category: 'security', source: 'sshd', details: { unit: 'ssh.service' } },
      { level: 'info', category: 'application', source: 'backup', details: { pid: '7' } },
      { level: 'info', category: 'system', source: 'journal' },
    ])
    expect(new Set(read?.events.map(({ eventId }) => eventId)).size).toBe(4)
    expect(isAccepted(read!.events)).toBe(true)
  })

  test('drops or cuts what cannot be submitted', async () => {
    const odd = [
      record(1, { MESSAGE: [104, 105, 255, 0] }),
      record(2, { MESSAGE: null }),
      record(3, { MESSAGE: `a\u0000${'🚀'.repeat(2000)}`, SYSLOG_IDENTIFIER: 'x'.repeat(400) }),
      record(4, { __REALTIME_TIMESTAMP: 'soon' }),
      record(5, { __CURSOR: undefined }),
      record(6, { MESSAGE: [104, 'x'] }),
    ]
    const text = `${lines(...odd)}not json\n7\nnull\n{"cut":`
    const read = await readJournal(undefined, 100, printing(text))
    expect(read?.events).toHaveLength(2)
    expect(read?.cursor).toBe('cursor-6')
    expect(isAccepted(read!.events)).toBe(true)
  })

  test('is absent on a machine without journald', async () => {
    expect(await readJournal(undefined, 100, join(home, 'absent'))).toBeUndefined()
    expect(await readJournal('c', 100, join(home, 'absent'))).toBeUndefined()
    expect(await readJournal(undefined, 100, printing(''))).toBeUndefined()
    expect(await readJournal(undefined, 100, journalctl('exit 1'))).toBeUndefined()
  })
})

describe('log files', () => {
  const folder = () => join(home, 'log')
  const write = (name: string, text: string) => appendFileSync(join(folder(), name), text)
  let positions: FilePositions | undefined
  const read = async (max = 100) => {
    const found = await readLogFiles(folder(), positions, max, now)
    positions = found.positions
    expect(isAccepted(found.events)).toBe(true)
    return found.events
  }
  const news = async (max?: number) => (await read(max)).map(({ message }) => message)
  beforeEach(() => {
    positions = undefined
    mkdirSync(folder())
  })

  test('are read from their end on, whole lines only', async () => {
    write('app.log', 'old\n')
    expect(await news()).toEqual([])
    write('app.log', 'one\n\ntwo\nthr')
    write('app.txt', 'no log\n')
    expect(await news()).toEqual(['one', 'two'])
    write('app.log', 'ee\n')
    write('new.log', 'first\n')
    expect(await news()).toEqual(['three', 'first'])
    expect(await news()).toEqual([])
  })

  test('are read up to a limit of lines at a time, and completely over several reads', async () => {
    await news()
    write('a.log', Array.from({ length: 150 }, (_, n) => `a${n}\n`).join(''))
    write('b.log', 'b0\n')
    const seen = [await news(), await news(), await news()]
    expect(seen.map((one) => one.length)).toEqual([100, 51, 0])
    expect(seen.flat()).toEqual([...Array.from({ length: 150 }, (_, n) => `a${n}`), 'b0'])
  })

  test('that are rotated or truncated are read from their start', async () => {
    await news()
    write('app.log', 'one\ntwo\n')
    await news()
    renameSync(join(folder(), 'app.log'), join(folder(), 'app.log.1'))
    write('app.log', 'three, longer than before\n')
    expect(await news()).toEqual(['three, longer than before'])
    writeFileSync(join(folder(), 'app.log'), 'four\n')
    expect(await news()).toEqual(['four'])
  })

  test('that grew too much are read from a mebibyte before their end', async () => {
    await news()
    write('app.log', 'x'.repeat(200_000))
    write('app.log', `\n${'line\n'.repeat(400_000)}last\n`)
    let all: string[] = []
    for (let part = await news(5000); part.length > 0; part = await news(5000)) all = [...all, ...part]
    expect(all.length).toBeLessThan(220_000)
    expect(all.at(-1)).toBe('last')
  })

  test('have level, category and time as far as a line states them', async () => {
    await news()
    write('auth.log', '2026-02-28T23:00:00.5+01:00 sshd: Failed password\n')
    write('kern.log', 'Kernel PANIC\n')
    write('shop.log', 'warning: slow\n2026-99-99 12:00:00 nothing\n')
    write('dpkg.log', 'installed\n')
    expect(await read()).toMatchObject([
      { source: 'auth.log', category: 'security', level: 'error', timestamp: '2026-02-28T22:00:00.500Z' },
      { source: 'dpkg.log', category: 'system', level: 'info' },
      { source: 'kern.log', category: 'hardware', level: 'critical' },
      { source: 'shop.log', category: 'application', level: 'warning', timestamp: now.toISOString() },
      { timestamp: now.toISOString() },
    ])
  })

  test('with two equal lines give two events', async () => {
    await news()
    write('app.log', 'same\nsame\n')
    expect(new Set((await read()).map(({ eventId }) => eventId)).size).toBe(2)
  })

  test('that cannot be read do not affect the others', async () => {
    await news()
    mkdirSync(join(folder(), 'folder.log'))
    write('app.log', 'one\n')
    expect(await news()).toEqual(['one'])
    const absent = await readLogFiles(join(home, 'nowhere'), undefined, 100, now)
    expect(absent).toEqual({ events: [], positions: {} })
  })
})

describe('the host logs', () => {
  test('are the journal where there is one, otherwise the files', async () => {
    mkdirSync(join(home, 'log'))
    writeFileSync(join(home, 'log', 'app.log'), 'one\n')
    const files = {}
    const places = { folder: join(home, 'log'), now, journal: join(home, 'absent') }
    const fromFiles = await readHostLogs({ files }, 100, places)
    expect(fromFiles).toMatchObject({
      events: [{ message: 'one' }],
      position: { files: { 'app.log': { offset: 4 } } },
    })
    const fromJournal = await readHostLogs({ files }, 100, { ...places, journal: printing(lines(record(3))) })
    expect(fromJournal).toMatchObject({
      events: [{ message: 'message 3' }],
      position: { cursor: 'cursor-3' },
    })
  })

  test('over a day old are skipped when there are more than can be submitted', async () => {
    writeFileSync(join(home, 'latest'), lines(record(9)))
    const old = record(1, { __REALTIME_TIMESTAMP: `${now.getTime() - 25 * 3_600_000}000` })
    writeFileSync(join(home, 'old'), lines(old))
    const journal = journalctl(
      `case "$*" in *after-cursor*) cat "${home}/old";; *) cat "${home}/latest";; esac`,
    )
    const read = await readHostLogs({ cursor: 'cursor-0' }, 100, { journal, now })
    expect(read.events.map(({ message }) => message)).toEqual(['message 9'])
    expect(read.position).toEqual({ cursor: 'cursor-9' })
  })

  test('have a stored position, and a damaged one counts as none', () => {
    const store = logPositionStore(home)
    expect(store.load()).toEqual({})
    store.save({ cursor: 'c', files: { 'a.log': { inode: 1, offset: 2 } } })
    expect(store.load()).toEqual({ cursor: 'c', files: { 'a.log': { inode: 1, offset: 2 } } })
    writeFileSync(join(home, 'logs.json'), '{"cursor": 7}')
    expect(store.load()).toEqual({})
  })
})
