import { closeSync, fsyncSync, linkSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { readJson, replaceFile } from '../durable.ts'
import { parseRecord, type SpoolRecord } from './records.ts'
import { listSegments, type Segment, segmentName } from './segments.ts'

const maxBytes = 10 * 1024 * 1024
const segmentBytes = 256 * 1024
const maxSegments = 1000
/** Most records of one request. */
const maxBatch = 500
/** Most records in memory while the disk cannot be written. */
const maxInMemory = 500

/** Read position: the number of processed lines of a segment. */
type ReadPosition = { segment: number; lines: number }

export type SpoolBatch = { records: SpoolRecord[]; done: () => void }

/**
 * Records for the service until they are sent: NDJSON in segments to which several processes may append and from
 * which one reads. Records are sent in order; lines torn by a crash are skipped. At most 10 MiB are stored: the
 * oldest are dropped first, and counted. A record that cannot be written stays in memory; nothing here throws.
 */
export function openSpool(directory: string, limits = { maxBytes, segmentBytes }) {
  const positionFile = join(directory, 'place.json')
  let open: { descriptor: number; bytes: number } | undefined
  let unsavedPosition: ReadPosition | undefined
  let inMemory: SpoolRecord[] = []
  let lost = 0
  let urgent = false

  /** `durable`: on disk before this returns, and sent soon. */
  function append(record: SpoolRecord, { durable = false } = {}): void {
    urgent ||= durable
    flush()
    if (inMemory.length === 0 && tryWrite(record, durable)) return
    if (inMemory.length >= maxInMemory) lost += 1
    inMemory = [...inMemory, record].slice(-maxInMemory)
  }

  function flush(): void {
    while (inMemory[0] && tryWrite(inMemory[0], true)) inMemory.shift()
  }

  function tryWrite(record: SpoolRecord, durable: boolean): boolean {
    try {
      const line = Buffer.from(`${JSON.stringify(record)}\n`)
      if (open && open.bytes + line.length > limits.segmentBytes) close()
      if (open) write(open.descriptor, line)
      else open = { descriptor: newSegment(line), bytes: 0 }
      open.bytes += line.length
      if (durable) fsyncSync(open.descriptor)
      return true
    } catch {
      // The last line may be incomplete: nothing more is appended to this segment.
      close()
      return false
    }
  }

  /** A new segment appears with its first line in it: otherwise the reader could take it for empty and remove it. */
  function newSegment(line: Buffer): number {
    const segments = listSegments(directory)
    dropOldest(segments)
    const draft = join(directory, `${process.pid}.new`)
    rmSync(draft, { force: true })
    const descriptor = openSync(draft, 'wx', 0o600)
    try {
      write(descriptor, line)
      for (let number = Math.max(segments.last, readPosition().segment) + 1; ; number += 1) {
        try {
          linkSync(draft, join(directory, segmentName(number)))
          return descriptor
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
        }
      }
    } catch (error) {
      closeSync(descriptor)
      throw error
    } finally {
      rmSync(draft, { force: true })
    }
  }

  function dropOldest({ all, remove }: ReturnType<typeof listSegments>): void {
    const { segment: present, lines } = readPosition()
    let bytes = all.reduce((sum, { size }) => sum + size, 0)
    let count = all.length
    for (const segment of all) {
      if (bytes + limits.segmentBytes <= limits.maxBytes && count < maxSegments) return
      lost += Math.max(0, linesOf(segment).length - (segment.number === present ? lines : 0))
      remove(segment)
      bytes -= segment.size
      count -= 1
    }
  }

  function close(): void {
    if (!open) return
    const { descriptor } = open
    open = undefined
    try {
      fsyncSync(descriptor)
    } catch {
      // It is closed in any case.
    }
    closeSync(descriptor)
  }

  function readPosition(): ReadPosition {
    const { segment = 0, lines = 0 } =
      unsavedPosition ?? ((readJson(positionFile) ?? {}) as Partial<ReadPosition>)
    return { segment, lines }
  }

  function savePosition(next: ReadPosition): void {
    try {
      replaceFile(positionFile, JSON.stringify(next))
      unsavedPosition = undefined
    } catch {
      // It lasts until the agent ends; then the service gets these records once more.
      unsavedPosition = next
    }
  }

  function linesOf({ number }: Segment): string[] {
    try {
      // The text after the last line end is empty or incomplete.
      return readFileSync(join(directory, segmentName(number)), 'utf8')
        .split('\n')
        .slice(0, -1)
    } catch {
      // Another process has removed the segment.
      return []
    }
  }

  return {
    append,

    /** The oldest records of one kind, at most one request; undefined when everything was sent. */
    next(): SpoolBatch | undefined {
      flush()
      close()
      const { all, remove } = listSegments(directory)
      for (const segment of all) {
        const { segment: present, lines: skip } = readPosition()
        const lines = segment.number < present ? [] : linesOf(segment)
        const { records, used } = sameKind(
          (segment.number === present ? lines.slice(skip) : lines).map(parseRecord),
        )
        const lineCount = used + (segment.number === present ? skip : 0)
        const done = (): void => savePosition({ segment: segment.number, lines: lineCount })
        if (records.length > 0) return { records, done }
        if (segment.number >= present) done()
        remove(segment)
      }
      const { records } = sameKind(inMemory)
      const done = (): void => {
        inMemory = inMemory.filter((record) => !records.includes(record))
      }
      if (records.length > 0) return { records, done }
      urgent = false
      return undefined
    },

    /** Whether records other than diagnostics are pending. */
    isUrgent: (): boolean => urgent,

    /** Number of records dropped for lack of space since the last call. */
    takeLost(): number {
      const count = lost
      lost = 0
      return count
    },

    close,
  }
}
export type Spool = ReturnType<typeof openSpool>

function write(descriptor: number, line: Buffer): void {
  if (writeSync(descriptor, line) < line.length) throw new Error('there is no room for a whole line')
}

/** The first records that fit into one request: diagnostics are combined, every other record is sent alone. */
function sameKind(found: Iterable<SpoolRecord | undefined>): { records: SpoolRecord[]; used: number } {
  const records: SpoolRecord[] = []
  let used = 0
  for (const record of found) {
    const [first] = records
    const fits = !first || (first.kind === 'diagnostic' && record?.kind === 'diagnostic')
    if (record && (!fits || records.length >= maxBatch)) break
    used += 1
    if (record) records.push(record)
  }
  return { records, used }
}
