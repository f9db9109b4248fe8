/** The end of a process, by a monotonic clock. Milliseconds. */
export type Crash = { at: number; lived: number; hung: boolean }

const minute = 60_000
const maxPauseMs = minute
const crashLimit = 3

/** Milliseconds before a restart: 1 s doubling to 60 s, reset once a process lived a minute. */
export function restartDelay(crashes: readonly Crash[]): number {
  const last = crashes.findLastIndex(({ lived }) => lived >= minute)
  return Math.min(maxPauseMs, 1000 * 2 ** Math.max(0, crashes.length - 2 - last))
}

/**
 * Whether the binary is broken: its last three runs each ended within a minute, all within ten minutes, or hung and
 * were killed.
 */
export function isCrashLooping(crashes: readonly Crash[]): boolean {
  const latest = crashes.slice(-crashLimit)
  if (latest.length < crashLimit || latest.some(({ lived, hung }) => lived >= minute && !hung)) return false
  return latest.some(({ hung }) => hung) || latest.at(-1)!.at - latest[0]!.at <= 10 * minute
}
