import type { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { DatabaseWatch } from '../../daemon/database-watch.ts'
import { classifyDatabaseError, isOutage } from '../../src/storage/database-errors.ts'
import { metricValues } from '../metric-values.ts'

const errorOf = (code: string) => Object.assign(new Error(`error ${code}`), { code })

describe('an error of the database', () => {
  // PostgreSQL, appendix A; SQLite, result codes.
  it.each([
    ...['57P01', '57P03', '53300', '08006', 'ECONNREFUSED', 'SQLITE_BUSY'].map((code) => [
      code,
      'unreachable',
    ]),
    ...['57014', '55P03', '25P04', 'SQLITE_INTERRUPT'].map((code) => [code, 'too slow']),
    ...['25006', 'SQLITE_READONLY', 'EROFS'].map((code) => [code, 'read-only']),
    ...['53000', '53100', '53200', '53400', 'SQLITE_FULL', 'SQLITE_NOMEM', 'ENOSPC'].map((code) => [
      code,
      'full',
    ]),
    ...['58000', '58030', '58P01', 'SQLITE_IOERR_WRITE', 'EIO'].map((code) => [code, 'failing disk']),
    ...['28P01', '28000'].map((code) => [code, 'denying access']),
  ])('%s is an outage: %s', (code, failure) => {
    expect(classifyDatabaseError(errorOf(code))).toBe(failure)
    expect(isOutage(errorOf(code))).toBe(true)
  })

  it.each(['23505', '22P02', '42501', '2201B', 'SQLITE_CONSTRAINT_UNIQUE', 'ENOENT'])(
    '%s is about the statement',
    (code) => {
      expect(isOutage(errorOf(code))).toBe(false)
    },
  )
})

describe('the watch of the database', () => {
  afterEach(() => {
    vi.useRealTimers()
  })

  it('counts every error, and logs each reason again a minute later, with the number of errors', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    const lines: unknown[] = []
    const log = { error: (line: unknown) => void lines.push(line) } as unknown as pino.Logger
    const metrics = new Registry()
    const watch = new DatabaseWatch({ check: async () => {} } as never, log, metrics)
    const full = { trouble: 'full', sqlState: '53100', reason: 'error 53100' }
    for (let n = 0; n < 3; n++) watch.note(errorOf('53100'))
    watch.note(errorOf('58030'))
    watch.note(errorOf('23505'))
    expect(lines).toEqual([
      { ...full, failures: 1 },
      { trouble: 'failing disk', sqlState: '58030', reason: 'error 58030', failures: 1 },
    ])
    vi.advanceTimersByTime(59_999)
    watch.note(errorOf('53100'))
    expect(lines).toHaveLength(2)
    vi.advanceTimersByTime(1)
    watch.note(errorOf('53100'))
    expect(lines.slice(2)).toEqual([{ ...full, failures: 5 }])
    const counted = await metricValues(metrics, 'svc_database_failures_total')
    expect(counted).toMatchObject({ full: 5, failing_disk: 1 })
  })
})
