import { describe, expect, test } from 'vitest'
import { type Crash, isCrashLooping, restartDelay } from '../../../src/device-agent/watchdog/crashes.ts'

const crash = (at: number, lived = 1, hung = false): Crash => ({ at: at * 1000, lived: lived * 1000, hung })

test('the pause before a restart doubles from 1 to 60 s, and resets after a minute of life', () => {
  const pauses = Array.from({ length: 8 }, (_, n) => restartDelay(fill(n + 1)) / 1000)
  expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60])
  expect(restartDelay([...fill(7), crash(500, 61)])).toBe(1000)
  expect(restartDelay([...fill(7), crash(500, 61), crash(501)])).toBe(1000)
  expect(restartDelay([...fill(7), crash(500, 61), crash(501), crash(502)])).toBe(2000)
})

const fill = (count: number): Crash[] => Array.from({ length: count }, (_, n) => crash(n))

describe('a crash loop', () => {
  test.each<[string, Crash[], boolean]>([
    ['is not two crashes', [crash(1), crash(2)], false],
    ['is three crashes, each within a minute of the start', [crash(1), crash(2), crash(4)], true],
    ['is three such crashes within ten minutes', [crash(0), crash(300), crash(600)], true],
    ['is not three such crashes over a longer time', [crash(0), crash(300), crash(601)], false],
    ['is not three crashes with a minute of life in between', [crash(0), crash(100, 60), crash(101)], false],
    [
      'is any history that ends with three such crashes',
      [crash(0), crash(100, 60), crash(101), crash(103), crash(107)],
      true,
    ],
    [
      'is three hangs that needed a kill',
      [crash(300, 300, true), crash(601, 300, true), crash(903, 300, true)],
      true,
    ],
    [
      'is not two hangs and a crash after a long life',
      [crash(300, 300, true), crash(601, 300, true), crash(903, 300)],
      false,
    ],
  ])('%s', (_, crashes, broken) => expect(isCrashLooping(crashes)).toBe(broken))
})
