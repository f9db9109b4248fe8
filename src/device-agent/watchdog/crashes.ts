/** How a process came to its end, by a clock that never goes back. Milliseconds. */
export type Crash = { at: number; lived: number; hung: boolean }

const minute = 60_000
const maxPauseMs = minute
const crashLimit = 3

/** Milliseconds before it is started again: 1 s doubling to 60 s, for as long as it does not live a minute. */
export function restartDelay(crashes: readonly Crash[]): number {
  const last = crashes.findLastIndex(({ lived }) => lived >= minute)
  return Math.min(maxPauseMs, 1000 * 2 ** Math.max(0, crashes.length - 2 - last))
}

/**
 * Whether this binary is no good: three times in a row it ended within a minute, and that within ten, or it fell silent
 * and had to be killed.
 */
export function isCrashLooping(crashes: readonly Crash[]): boolean {
  const latest = crashes.slice(-crashLimit)
  if (latest.length < crashLimit || latest.some(({ lived, hung }) => lived >= minute && !hung)) return false
  return latest.some(({ hung }) => hung) || latest.at(-1)!.at - latest[0]!.at <= 10 * minute
}
