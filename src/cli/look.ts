import { plainStyle, type Style, styleFor } from './style.ts'

/** How a stream shows what is printed for a person. */
export type Look = {
  style: Style
  /** Columns of the terminal; undefined cuts no cell. */
  width: number | undefined
  /** Times are shown as ages at this moment; undefined shows them as they are. */
  now: number | undefined
}

/** Of files and pipes: complete and exact. */
export const plainLook: Look = { style: plainStyle, width: undefined, now: undefined }

type Stream = { isTTY?: boolean; columns?: number }

/** `utc`: exact times, also on a terminal. */
export function lookOf(stream: Stream, { utc = false } = {}): Look {
  const width = stream.isTTY ? stream.columns : undefined
  return { style: styleFor(stream), width, now: width === undefined || utc ? undefined : Date.now() }
}
