import { formatValue } from './columns.ts'
import { clearStatus, showStatus } from './stderr-notes.ts'
import { escapeToOneLine } from './table.ts'

const visible = (): boolean => process.stderr.isTTY === true && process.env.TERM !== 'dumb' && !process.env.CI

const frames = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']

/** Shows a spinner after a second, only if standard error is a terminal; `what` may change meanwhile. */
export async function withSpinner<T>(what: string | (() => string), work: Promise<T>): Promise<T> {
  if (!visible()) return work
  const started = performance.now()
  const timer = setInterval(() => {
    const passed = performance.now() - started
    if (passed < 1000) return
    const frame = frames[Math.floor(passed / 100) % frames.length]
    showStatus(
      `${frame} ${escapeToOneLine(typeof what === 'string' ? what : what())} ${Math.floor(passed / 1000)} s`,
    )
  }, 100)
  try {
    return await work
  } finally {
    clearInterval(timer)
    clearStatus()
  }
}

export type ProgressBar = { done(count: number): void; end(): void }

/**
 * Shows the progress of long work: a spinner after one second, a bar with rate and remaining time after three.
 * Without a total it shows a count and a rate.
 */
export function progressBar(what: string, unit: string, total?: number): ProgressBar {
  const started = performance.now()
  let count = 0
  const draw = () => {
    const passed = performance.now() - started
    if (passed < 1000) return
    showStatus(progressLine(what, unit, count, passed, total))
  }
  const timer = visible() ? setInterval(draw, 200) : undefined
  return {
    done: (now) => {
      count = now
    },
    end: () => {
      clearInterval(timer)
      clearStatus()
    },
  }
}

export function progressLine(
  what: string,
  unit: string,
  count: number,
  passed: number,
  total?: number,
): string {
  const frame = frames[Math.floor(passed / 100) % frames.length]
  const rate = count / (passed / 1000)
  const counted = `${formatNumber(count)}${total === undefined ? '' : ` of ${formatNumber(total)}`} ${unit}`
  if (passed < 3000) return `${frame} ${what} ${counted}`
  const pace = `${formatNumber(Math.round(rate))} ${unit}/s`
  if (total === undefined || total === 0) return `${frame} ${what} ${counted}, ${pace}`
  const filled = Math.min(20, Math.floor((count / total) * 20))
  const left = rate > 0 ? `, ${Math.ceil(Math.max(0, total - count) / rate)} s left` : ''
  return `${what} [${'#'.repeat(filled)}${'-'.repeat(20 - filled)}] ${counted}, ${pace}${left}`
}

/** A progress bar whose total is reported once the work has begun. */
export function progressReport(what: string, unit: string) {
  let bar: ProgressBar | undefined
  return {
    report({ total, done }: { total?: number; done: number }): void {
      if (total !== undefined) bar = progressBar(what, unit, total)
      bar?.done(done)
    },
    end: (): void => bar?.end(),
  }
}

export const formatNumber = (n: number): string => formatValue(n).replace(/\B(?=(\d{3})+$)/g, ' ')

export const formatEntries = (n: number): string => (n === 1 ? '1 entry' : `${formatNumber(n)} entries`)
