import { hash } from 'node:crypto'
import { isJsonObject } from '../../core/json.ts'
import { truncateStorable } from '../../core/text.ts'

type Details = Record<string, unknown>

/** Most bytes of the details of one entry, as JSON. It bounds the size of a page, an export or a batch of entries. */
const maxBytes = 64 * 1024
/** Characters kept of a value that is shortened. */
const keptLength = 1000

/**
 * Bounds the size of details. If they are too long, each long value (`after.conditions`) is replaced by its size, its
 * SHA-256 and its beginning: a caller who changes something large with each request could otherwise fill the log, and
 * exhaust the memory of everything that reads it.
 */
export function boundDetails(details: Details): Details {
  if (bytesOf(details) <= maxBytes) return details
  const short = mapValues(details, (value) =>
    isJsonObject(value) ? mapValues(value, shorten) : shorten(value),
  )
  return bytesOf(short) <= maxBytes ? short : mapValues(details, shorten)
}

function shorten(value: unknown): unknown {
  const text = JSON.stringify(value) ?? ''
  if (text.length <= 2 * keptLength) return value
  const beginning = truncateStorable(text, keptLength)
  return { shortened: { bytes: Buffer.byteLength(text), sha256: hash('sha256', text, 'hex'), beginning } }
}

const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

const mapValues = (of: Details, change: (value: unknown) => unknown): Details =>
  Object.fromEntries(Object.entries(of).map(([key, value]) => [key, change(value)]))
