import { hash } from 'node:crypto'
import { truncateStorable } from '../../core/text.ts'

type Details = Record<string, unknown>

/** Most bytes of the details of one entry, as JSON: what a page, an export or a batch of entries takes follows from it. */
const maxBytes = 64 * 1024
/** Characters of a value that stay of details that are longer. */
const keptLength = 1000

/**
 * Details of a bounded size. Of those that are too long each long value (`after.conditions`) gives way to its size, SHA-256 and
 * beginning: whoever changes something large with each request would otherwise fill the log, and all who read it.
 */
export function boundDetails(details: Details): Details {
  if (bytesOf(details) <= maxBytes) return details
  const short = mapValues(details, (value) => (isObject(value) ? mapValues(value, shorten) : shorten(value)))
  return bytesOf(short) <= maxBytes ? short : mapValues(details, shorten)
}

function shorten(value: unknown): unknown {
  const text = JSON.stringify(value) ?? ''
  if (text.length <= 2 * keptLength) return value
  const beginning = truncateStorable(text, keptLength)
  return { shortened: { bytes: Buffer.byteLength(text), sha256: hash('sha256', text, 'hex'), beginning } }
}

const bytesOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

const isObject = (value: unknown): value is Details =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const mapValues = (of: Details, change: (value: unknown) => unknown): Details =>
  Object.fromEntries(Object.entries(of).map(([key, value]) => [key, change(value)]))
