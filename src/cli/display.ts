import { plainStyle, type Style, styleFor } from './style.ts'

/** How a stream displays what is printed for a person. */
export type Display = {
  style: Style
  /** Columns of the terminal; undefined cuts no cell. */
  width: number | undefined
  /** Times are shown as ages at this moment; undefined shows them as they are. */
  now: number | undefined
}

/** Of files and pipes: complete and exact. */
export const plainDisplay: Display = { style: plainStyle, width: undefined, now: undefined }

type Stream = { isTTY?: boolean; columns?: number }

/** `utc`: exact times, also on a terminal. */
export function displayOf(stream: Stream, { utc = false } = {}): Display {
  const width = stream.isTTY ? stream.columns : undefined
  return { style: styleFor(stream), width, now: width === undefined || utc ? undefined : Date.now() }
}
