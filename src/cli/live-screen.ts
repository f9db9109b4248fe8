import { setTimeout as sleep } from 'node:timers/promises'
import { allowSequence } from '../core/terminal.ts'
import { exitCodes } from './exit-codes.ts'
import { retryUntilAvailable } from './follow.ts'
import { flushNotes } from './stderr-notes.ts'

export type ScreenSize = { columns: number; rows: number }

/** Whether what is followed can be redrawn in place. */
export const canRedraw = (): boolean => process.stdout.isTTY === true && process.env.TERM !== 'dumb'

/** The alternate screen without a cursor, where long lines are cut instead of wrapped. */
const enter = allowSequence('\u001b[?1049h\u001b[?25l\u001b[?7l')
const leave = allowSequence('\u001b[?7h\u001b[?25h\u001b[?1049l')
const home = allowSequence('\u001b[H')
const clearLine = allowSequence('\u001b[K')
const clearBelow = allowSequence('\u001b[J')

export const quitHint = 'q quits'

/** The time to the next request: a slow service is asked less often. */
export const pauseAfter = (everyMs: number, tookMs: number): number => Math.max(everyMs, tookMs * 4)

/**
 * Reads without end, and hands on each state. A service that is away or overloaded is waited for, as long as it asks;
 * `tell` receives what is wrong meanwhile.
 */
export async function poll<T>(
  { read, everyMs, tell }: { read: () => Promise<T>; everyMs: number; tell?: (text: string) => void },
  show: (state: T) => Promise<void> | void,
): Promise<never> {
  flushNotes()
  for (;;) {
    let began = 0
    const state = await retryUntilAvailable(() => {
      began = performance.now()
      return read()
    }, tell)
    const took = performance.now() - began
    await show(state)
    await sleep(pauseAfter(everyMs, took))
  }
}

/** Shows a picture of the newest state on the whole terminal, until q or Ctrl-C; then the terminal is as it was. */
export async function showLive<T>(
  read: () => Promise<T>,
  everyMs: number,
  /** At most `rows` lines. */
  draw: (state: T, size: ScreenSize) => string[] | Promise<string[]>,
): Promise<void> {
  const { stdout } = process
  let state: { now: T } | undefined
  let trouble = ''
  const paint = async () => {
    const { columns, rows } = stdout
    const lines = state ? await draw(state.now, { columns, rows: rows - 1 }) : []
    const all = [...lines.slice(0, rows - 1), trouble]
    stdout.write(`${home}${all.map((line) => line + clearLine).join('\n')}${clearBelow}`)
  }
  const repaint = () => void paint()
  const first = await read()
  const restore = () => stdout.write(leave)
  process.once('exit', restore)
  for (const signal of ['SIGTERM', 'SIGHUP'] as const)
    process.once(signal, () => process.exit(exitCodes.interrupted))
  const keys = onKeys()
  stdout.on('resize', repaint)
  stdout.write(enter)
  try {
    let isFirst = true
    const readNext = () => {
      if (!isFirst) return read()
      isFirst = false
      return Promise.resolve(first)
    }
    const tell = (text: string) => {
      trouble = text
      repaint()
    }
    const show = (now: T) => {
      state = { now }
      trouble = ''
      return paint()
    }
    await Promise.race([poll({ read: readNext, everyMs, tell }, show), keys.quit])
  } finally {
    stdout.off('resize', repaint)
    process.off('exit', restore)
    keys.end()
    restore()
  }
}

/** Keys are read one by one and not echoed. */
function onKeys(): { quit: Promise<void>; end(): void } {
  const { stdin } = process
  if (!stdin.isTTY) return { quit: new Promise(() => {}), end: () => {} }
  let quit = () => {}
  const quitting = new Promise<void>((resolve) => {
    quit = resolve
  })
  const onData = (typed: Buffer) => {
    if (typed.includes('\u0003')) process.exit(exitCodes.interrupted)
    if (typed.includes('q')) quit()
  }
  stdin.setRawMode(true)
  stdin.on('data', onData)
  return {
    quit: quitting,
    end() {
      stdin.off('data', onData)
      stdin.setRawMode(false)
      stdin.pause()
    },
  }
}
