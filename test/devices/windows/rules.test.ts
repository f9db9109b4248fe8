import { describe, expect, it } from 'vitest'
import { parseWeeklyTimes, spellWeeklyTimes } from '../../../src/core/weekly-window.ts'
import { isOpenAt, isOpenThroughout, occurrenceAt } from '../../../src/devices/windows/rules.ts'

describe('the times of a week', () => {
  it.each<[string, number[], string]>([
    ['Sun 02:00', [0], 'Sun 02:00'],
    ['mon-FRI 22:30', [1, 2, 3, 4, 5], 'Mon-Fri 22:30'],
    ['Sat,Sun 00:00', [0, 6], 'Sat,Sun 00:00'],
    ['fri-mon,sat 23:59', [0, 1, 5, 6], 'Fri-Mon,Sat 23:59'],
    ['Daily 03:00', [0, 1, 2, 3, 4, 5, 6], 'daily 03:00'],
  ])('are written as %s', (text, days, spelled) => {
    expect(parseWeeklyTimes(text)?.days).toEqual(days)
    expect(spellWeeklyTimes(text)).toBe(spelled)
  })

  it.each([
    '',
    'Sun',
    '02:00',
    'Sun 2:00',
    'Sun 24:00',
    'Sun 02:60',
    'Sunday 02:00',
    'Sun, Mon 02:00',
    'Sun,, 02:00',
    'Mon-Wed-Fri 02:00',
    'daily,Sun 02:00',
    'Sun 02:00 ',
  ])('cannot be written as "%s"', (text) => {
    expect(parseWeeklyTimes(text)).toBeUndefined()
  })
})

const window = (every: string, timezone: string, durationMinutes = 120) => ({
  every,
  timezone,
  durationMinutes,
})

describe('an occurrence of a window', () => {
  it.each<[string, string, string, string]>([
    // In UTC, on two Sundays.
    ['Sun 02:00', 'UTC', '2026-03-01T03:59:59.999Z', '2026-03-01T02:00:00.000Z'],
    ['Sun 02:00', 'UTC', '2026-03-01T04:00:00.000Z', '2026-03-08T02:00:00.000Z'],
    ['Mon-Fri 22:30', 'UTC', '2026-03-07T00:30:00.000Z', '2026-03-09T22:30:00.000Z'],
    ['Mon-Fri 22:30', 'UTC', '2026-03-07T00:29:59.999Z', '2026-03-06T22:30:00.000Z'],
    // Summer time moves it within UTC, and not on the clock of the wall.
    ['daily 04:00', 'Europe/Paris', '2026-03-28T06:00:00.000Z', '2026-03-29T02:00:00.000Z'],
    ['daily 04:00', 'Europe/Paris', '2026-03-28T02:00:00.000Z', '2026-03-28T03:00:00.000Z'],
    ['daily 04:00', 'America/New_York', '2026-03-08T05:00:00.000Z', '2026-03-08T08:00:00.000Z'],
    ['daily 04:00', 'America/New_York', '2026-03-07T05:00:00.000Z', '2026-03-07T09:00:00.000Z'],
    // A local time that does not exist: the moment after the gap.
    ['Sun 02:30', 'Europe/Paris', '2026-03-29T00:00:00.000Z', '2026-03-29T01:00:00.000Z'],
    ['Sun 02:30', 'America/New_York', '2026-03-08T00:00:00.000Z', '2026-03-08T07:00:00.000Z'],
    ['Sun 02:30', 'Australia/Sydney', '2026-10-03T12:00:00.000Z', '2026-10-03T16:00:00.000Z'],
    // A local time that exists twice: the first, and only that one.
    ['Sun 02:30', 'Europe/Paris', '2026-10-25T00:00:00.000Z', '2026-10-25T00:30:00.000Z'],
    ['Sun 02:30', 'Europe/Paris', '2026-10-25T02:30:00.000Z', '2026-11-01T01:30:00.000Z'],
    ['daily 01:30', 'America/New_York', '2026-11-01T05:00:00.000Z', '2026-11-01T05:30:00.000Z'],
    ['daily 01:30', 'America/New_York', '2026-11-01T07:30:00.000Z', '2026-11-02T06:30:00.000Z'],
    ['Sun 02:30', 'Australia/Sydney', '2026-04-04T14:00:00.000Z', '2026-04-04T15:30:00.000Z'],
    ['Sun 02:30', 'Australia/Sydney', '2026-04-04T17:30:00.000Z', '2026-04-11T16:30:00.000Z'],
  ])('of %s in %s, at %s, opens at %s', (every, timezone, now, opensAt) => {
    const closesAt = new Date(Date.parse(opensAt) + 7_200_000).toISOString()
    expect(occurrenceAt(window(every, timezone), now)).toEqual({ opensAt, closesAt })
    expect(isOpenAt(window(every, timezone), now)).toBe(opensAt <= now)
  })

  it('lasts its duration of elapsed time, through a change of the clocks', () => {
    const spring = window('Sun 01:30', 'Europe/Paris')
    expect(isOpenAt(spring, '2026-03-29T02:29:59.999Z')).toBe(true)
    expect(isOpenAt(spring, '2026-03-29T02:30:00.000Z')).toBe(false)
    const autumn = window('Sun 02:30', 'Europe/Paris', 60)
    // 02:45 for the first time, and for the second.
    expect(isOpenAt(autumn, '2026-10-25T00:45:00.000Z')).toBe(true)
    expect(isOpenAt(autumn, '2026-10-25T01:45:00.000Z')).toBe(false)
  })

  it('is the same whichever moments were asked about before', () => {
    const times = ['2026-03-08T02:00:00.000Z', '2026-03-01T02:00:00.000Z', '2026-03-15T01:00:00.000Z']
    const asked = times.map((now) => occurrenceAt(window('Sun 02:00', 'Etc/UTC'), now)?.opensAt)
    expect(asked).toEqual([times[0], times[1], '2026-03-15T02:00:00.000Z'])
  })

  it('does not exist in an unknown time zone: such a window never opens', () => {
    expect(occurrenceAt(window('daily 00:00', 'Mars/Olympus', 1440), '2026-03-01T12:00:00.000Z')).toBe(
      undefined,
    )
    expect(isOpenAt(window('daily 00:00', 'Mars/Olympus', 1440), '2026-03-01T12:00:00.000Z')).toBe(false)
  })

  it('covers a span that begins and ends in it, and no longer one', () => {
    const sunday = window('Sun 02:00', 'UTC')
    const covers = (from: string, to: string) =>
      isOpenThroughout(sunday, `2026-03-01T${from}:00.000Z`, `2026-03-01T${to}:00.000Z`)
    expect(covers('02:00', '04:00')).toBe(true)
    expect(covers('03:46', '04:01')).toBe(false)
    expect(covers('01:59', '02:10')).toBe(false)
  })
})
