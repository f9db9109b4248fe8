import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { hostLiveLogs } from '../../src/device-agent/live/host.ts'
import { answerQuery } from '../../src/device-agent/live/queries.ts'
import { QueryLog } from '../../src/live/wire/contract.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-logs-'))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const { signal } = new AbortController()
const queryOf = (logName: string, more: Partial<QueryLog> = {}) => QueryLog.parse({ logName, ...more })

describe('the live logs of a machine without a journal', () => {
  const logs = () => hostLiveLogs({ journal: '/nonexistent/journalctl', folder })
  const messages = async (more: Partial<QueryLog> = {}) =>
    (await logs().query(queryOf('app.log', more), signal)).events.map(({ message }) => message)

  beforeEach(() => {
    writeFileSync(
      join(folder, 'app.log'),
      [
        '2026-03-01T12:00:00Z began',
        '2026-03-01T13:00:00Z error: é broke',
        '',
        '2026-03-01T14:00:00Z warning: low',
        '2026-03-01T15:00:00Z trace of it',
      ].join('\n'),
    )
    writeFileSync(join(folder, 'syslog'), 'x\n')
    writeFileSync(join(folder, 'secret.key'), 'x\n')
    mkdirSync(join(folder, 'folder.log'))
  })

  it('are the log files in the folder, and no other file', async () => {
    const { logs: found } = await logs().list(signal)
    expect(found.map(({ name }) => name)).toEqual(['app.log', 'syslog'])
    expect(Date.parse(found[0]!.lastWriteTime!)).toBeGreaterThan(0)
    for (const name of ['secret.key', '../app.log', 'folder.log', join(folder, 'app.log'), '']) {
      await expect(logs().query(queryOf(name), signal)).rejects.toMatchObject({ code: 'log_not_found' })
    }
  })

  it('are read newest first, filtered by level and time, in pages', async () => {
    expect((await messages()).map((text) => text.slice(21))).toEqual([
      'trace of it',
      'warning: low',
      'error: é broke',
      'began',
    ])
    expect(await messages({ level: 'error' })).toHaveLength(1)
    expect(await messages({ level: 'verbose' })).toEqual(['2026-03-01T15:00:00Z trace of it'])
    expect(await messages({ level: 'critical' })).toEqual([])
    const between = { startTime: '2026-03-01T13:00:00.000Z', endTime: '2026-03-01T15:00:00.000Z' }
    expect(await messages(between)).toHaveLength(2)
    expect(await messages({ source: 'other' })).toEqual([])
    const second = await logs().query(queryOf('APP.LOG', { page: 2, limit: 3 }), signal)
    expect(second).toMatchObject({ total: 4, events: [{ message: '2026-03-01T12:00:00Z began' }] })
  })

  it('return a record by its number, also after the file has grown', async () => {
    const { events } = await logs().query(queryOf('app.log'), signal)
    appendFileSync(join(folder, 'app.log'), '\n2026-03-01T16:00:00Z more\n')
    for (const event of events)
      expect(await logs().get('app.log', event.recordId, signal)).toEqual({ ...event })
    for (const none of [0, 2, events[0]!.recordId + 1, 1_000_000]) {
      await expect(logs().get('app.log', none, signal)).rejects.toMatchObject({ code: 'record_not_found' })
    }
  })

  it('are read from the end when they are long, in bounded memory', async () => {
    writeFileSync(
      join(folder, 'app.log'),
      `${'x'.repeat(200_000)}\n${'2026-03-01T12:00:00Z y\n'.repeat(500_000)}`,
    )
    const page = await logs().query(queryOf('app.log', { page: 3, limit: 200 }), signal)
    expect(page).toMatchObject({ total: 10_000 })
    expect(page.events).toHaveLength(200)
  })

  it('do not follow a dangling link', async () => {
    symlinkSync('/nonexistent', join(folder, 'gone.log'))
    expect((await logs().list(signal)).logs.map(({ name }) => name)).not.toContain('gone.log')
    await expect(logs().query(queryOf('gone.log'), signal)).rejects.toThrow()
  })
})

describe('the live logs of a machine with a journal', () => {
  const record = (n: number, more: object = {}) => ({
    __REALTIME_TIMESTAMP: String(1_772_366_400_000_000 + n),
    PRIORITY: '6',
    SYSLOG_IDENTIFIER: 'sshd',
    SYSLOG_FACILITY: '4',
    MESSAGE: `record ${n}`,
    _HOSTNAME: 'web-1',
    _UID: '0',
    ...more,
  })
  const argumentLines = () => readFileSync(join(folder, 'args'), 'utf8').trim().split('\n')
  const lastArguments = () => argumentLines().at(-1)!

  /** A journalctl that prints these records, and records its arguments. */
  function journalOf(records: object[]) {
    const command = join(folder, 'journalctl')
    writeFileSync(join(folder, 'records'), records.map((one) => `${JSON.stringify(one)}\n`).join(''))
    writeFileSync(
      command,
      `#!/bin/sh
printf '%s ' "$@" >> ${folder}/args; echo >> ${folder}/args
case "$*" in
  *--header*) printf 'Entry objects: 40\\nTail realtime timestamp: Sun (64bf1b2c4e000)\\nEntry Objects: 2\\n';;
  *--field=*) printf 'ssh.service\\ncron.service\\n';;
  *--lines=1\\ *|*--lines=1) head -n 1 ${folder}/records;;
  *) cat ${folder}/records;;
esac
`,
    )
    chmodSync(command, 0o755)
    return hostLiveLogs({ journal: command, folder: '/nonexistent' })
  }

  it('are the whole journal, the kernel, sign-ins, and each unit', async () => {
    const { logs } = await journalOf([record(1)]).list(signal)
    expect(logs.map(({ name }) => name)).toEqual(['System', 'Kernel', 'Auth', 'cron.service', 'ssh.service'])
    expect(logs[0]).toMatchObject({ recordCount: 42, lastWriteTime: expect.stringMatching(/^20\d\d-/) })
    expect(logs[1]).not.toHaveProperty('recordCount')
  })

  it('pass filters to journalctl as arguments, never through a shell', async () => {
    const logs = journalOf([record(1)])
    await logs.query(
      queryOf('Auth', {
        level: 'warning',
        source: '$(touch /tmp/x); sshd',
        startTime: '2026-03-01T12:00:00.250Z',
        endTime: '2026-03-01T13:00:00.000Z',
      }),
      signal,
    )
    for (const part of [
      '--reverse',
      '--priority=4..4',
      '--since=@1772366400.250000',
      '--until=@1772369999.999999',
      'SYSLOG_IDENTIFIER=$(touch /tmp/x); sshd',
      'SYSLOG_FACILITY=4 SYSLOG_FACILITY=10',
    ]) {
      expect(lastArguments()).toContain(part)
    }
    await logs.query(queryOf('SSH.service', { level: 'critical' }), signal)
    expect(lastArguments()).toContain('--priority=0..2 _SYSTEMD_UNIT=ssh.service')
    await expect(logs.query(queryOf('--output=cat'), signal)).rejects.toMatchObject({ code: 'log_not_found' })
  })

  it('have pages of numbered records, each of which is found by its number', async () => {
    const records = Array.from({ length: 5 }, (_, n) => record(5 - n, { PRIORITY: String(n + 3) }))
    const logs = journalOf(records)
    const { events, total } = await logs.query(queryOf('System', { page: 2, limit: 2 }), signal)
    expect(total).toBe(5)
    expect(events).toMatchObject([
      { recordId: 1_772_366_400_000_003, message: 'record 3', level: 'information' },
      { recordId: 1_772_366_400_000_002, message: 'record 2', level: 'information' },
    ])
    expect(events[0]).toMatchObject({ source: 'sshd', category: 'security', computer: 'web-1', userId: '0' })
    expect(Number.isSafeInteger(events[0]!.recordId)).toBe(true)
    await logs.get('System', events[0]!.recordId, signal)
    expect(lastArguments()).toContain('--since=@1772366400.000003 --until=@1772366400.000003')
  })

  it('filter by message id', async () => {
    const session = { MESSAGE_ID: '8d45620c1a4348dbb17410da57c60c66' }
    const logs = journalOf([record(3), record(2, session), record(1)])
    const { events, total } = await logs.query(queryOf('System', { eventId: 0x8d45620c }), signal)
    expect([total, events.map(({ message }) => message)]).toEqual([1, ['record 2']])
  })

  it('have a deadline', async () => {
    const command = join(folder, 'slow')
    writeFileSync(command, `#!/bin/sh\ncase "$*" in *--lines=1) echo '{}';; *) exec sleep 30;; esac\n`)
    chmodSync(command, 0o755)
    const query = queryOf('System', { timeoutSeconds: 0.2 })
    await expect(hostLiveLogs({ journal: command }).query(query, signal)).rejects.toThrow('took too long')
  })
})

describe('a live query', () => {
  const logs = () => hostLiveLogs({ journal: '/nonexistent', folder })

  it('that is unknown or invalid fails', async () => {
    for (const [type, payload] of [
      ['event_logs_format', {}],
      ['constructor', {}],
      ['event_logs_query', { logName: 7 }],
      ['event_log_get', {}],
    ] as const) {
      expect(await answerQuery({ id: '1', type, payload }, logs(), signal)).toMatchObject({
        status: 'failed',
      })
    }
    const absent = { id: '1', type: 'event_log_get', payload: { logName: 'x', recordId: 1 } }
    expect(await answerQuery(absent, logs(), signal)).toMatchObject({
      status: 'failed',
      code: 'log_not_found',
    })
  })
})
