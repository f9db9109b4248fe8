import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  appendFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { SpoolRecord } from '../../src/device-agent/spool/records.ts'
import { openSpool, type Spool } from '../../src/device-agent/spool/spool.ts'

let root: string
let directory: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'svc-spool-'))
  directory = join(root, 'spool')
})
afterEach(() => rmSync(root, { recursive: true, force: true }))

const log = (n: number, size = 0): SpoolRecord => ({
  kind: 'diagnostic',
  log: {
    timestamp: '2026-01-31T12:00:00.000Z',
    level: 'warn',
    component: 'test',
    message: `${n}${'x'.repeat(size)}`,
  },
})
const result = (id: string): SpoolRecord => ({
  kind: 'result',
  commandId: id,
  outcome: { status: 'completed' },
})
const failed = (version: string): SpoolRecord => ({
  kind: 'update',
  outcome: { targetVersion: version, state: 'failed', reason: 'no' },
})

/** The names of all records, batch by batch, each marked as done. */
function drain(spool: Spool): string[][] {
  const batches: string[][] = []
  for (let batch = spool.next(); batch; batch = spool.next()) {
    batches.push(batch.records.map(nameOf))
    batch.done()
  }
  return batches
}
function nameOf(record: SpoolRecord): string {
  if (record.kind === 'diagnostic') return record.log.message.replace(/x+$/, '')
  return record.kind === 'result' ? record.commandId : record.outcome.targetVersion
}

describe('the spool', () => {
  test('returns records in order, diagnostics in batches and the rest one by one', () => {
    const spool = openSpool(directory)
    for (const record of [log(1), log(2), result('a'), failed('2.0.0'), log(3)]) spool.append(record)
    expect(drain(spool)).toEqual([['1', '2'], ['a'], ['2.0.0'], ['3']])
    expect(spool.next()).toBeUndefined()
  })

  test('returns records again that were not done, also in the next process', () => {
    const spool = openSpool(directory)
    spool.append(log(1))
    expect(spool.next()!.records).toHaveLength(1)
    expect(spool.next()!.records).toHaveLength(1)
    spool.append(result('a'))
    expect(drain(openSpool(directory))).toEqual([['1'], ['a']])
    expect(drain(openSpool(directory))).toEqual([])
  })

  test('resumes in the middle of a segment after a restart', () => {
    const spool = openSpool(directory)
    for (let n = 0; n < 1200; n += 1) spool.append(log(n))
    spool.next()!.done()
    const batches = drain(openSpool(directory))
    expect(batches.map(({ length }) => length)).toEqual([500, 200])
    expect(batches[0]![0]).toBe('500')
  })

  test('skips torn records only', () => {
    const spool = openSpool(directory)
    spool.append(log(1))
    spool.append(log(2))
    spool.close()
    const [segment] = readdirSync(directory)
    truncateSync(join(directory, segment!), statSync(join(directory, segment!)).size - 5)
    const next = openSpool(directory)
    next.append(log(3))
    next.close()
    appendFileSync(
      join(
        directory,
        readdirSync(directory)
          .filter((name) => /\d/.test(name))
          .at(-1)!,
      ),
      '{"kind"',
    )
    expect(drain(openSpool(directory)).flat()).toEqual(['1', '3'])
  })

  test('skips records of another version', () => {
    const spool = openSpool(directory)
    spool.append({ kind: 'dream' } as never)
    spool.append(log(1))
    expect(drain(spool)).toEqual([['1']])
  })

  test('has a maximum size, drops the oldest and counts them', () => {
    const spool = openSpool(directory, { maxBytes: 50_000, segmentBytes: 5000 })
    for (let n = 0; n < 200; n += 1) spool.append(log(n, 900))
    const size = readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)
    expect(size).toBeLessThanOrEqual(50_000)
    const kept = drain(spool).flat().map(Number)
    expect(kept.at(-1)).toBe(199)
    expect(kept).toEqual(Array.from({ length: kept.length }, (_, n) => 200 - kept.length + n))
    expect(kept.length).toBeGreaterThan(30)
    expect(spool.takeLost()).toBe(200 - kept.length)
    expect(spool.takeLost()).toBe(0)
  })

  test('is shared by several processes: none overwrites or loses records of another', () => {
    const reader = openSpool(directory)
    const writers = [openSpool(directory), openSpool(directory), openSpool(directory)]
    const seen: string[] = []
    for (let n = 0; n < 90; n += 1) {
      const writer = writers[n % 3]!
      writer.append(log(n), { durable: true })
      writer.close()
      if (n % 7 === 0) seen.push(...drain(reader).flat())
      if (n % 5 === 0) reader.append(log(1000 + n))
    }
    seen.push(...drain(reader).flat())
    const own = Array.from({ length: 18 }, (_, n) => String(1000 + n * 5))
    expect(new Set(seen)).toEqual(new Set([...Array.from({ length: 90 }, (_, n) => String(n)), ...own]))
    expect(seen).toHaveLength(108)
  })

  test('keeps every record that was appended before a kill', async () => {
    const module = new URL('../../src/device-agent/spool/spool.ts', import.meta.url).href
    const code = `
      const { openSpool } = await import(process.argv[1])
      const spool = openSpool(process.argv[2])
      for (let n = 0; ; n += 1) { spool.append(${JSON.stringify(log(0))}); console.log(n) ; if (n % 50 === 0) await new Promise((r) => setTimeout(r, 1)) }`
    const child = spawn(process.execPath, ['--input-type=module', '-e', code, module, directory])
    let out = ''
    child.stdout.on('data', (chunk) => {
      out += chunk
    })
    while (out.split('\n').length < 200) await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'close')
    const put = out.split('\n').length - 1
    expect(put).toBeGreaterThan(100)
    expect(drain(openSpool(directory)).flat().length).toBeGreaterThanOrEqual(put)
  })

  test('keeps in memory what cannot be written, and writes it later', () => {
    execFileSync('sh', ['-c', `touch "${directory}"`])
    const spool = openSpool(directory)
    for (let n = 0; n < 600; n += 1) spool.append(log(n))
    expect(spool.takeLost()).toBe(100)
    expect(spool.next()!.records).toHaveLength(500)
    rmSync(directory)
    spool.append(log(600))
    spool.close()
    expect(readFileSync(join(directory, '0000000001.ndjson'), 'utf8').split('\n')).toHaveLength(502)
    const names = drain(openSpool(directory)).flat()
    expect([names[0], names.at(-1)]).toEqual(['100', '600'])
  })

  test('does not tear a record where the file size is limited', () => {
    const module = new URL('../../src/device-agent/spool/spool.ts', import.meta.url).href
    const code = `
      process.on('SIGXFSZ', () => {})
      const { openSpool } = await import(process.argv[1])
      const spool = openSpool(process.argv[2])
      for (let n = 0; n < 100; n += 1) spool.append({ kind: 'result', commandId: String(n), outcome: { status: 'completed', result: 'x'.repeat(100) } })
      const names = []
      for (let batch = spool.next(); batch; batch = spool.next()) { names.push(batch.records[0].commandId); batch.done() }
      console.log(names.join(' '))`
    const out = execFileSync(
      'sh',
      [
        '-c',
        'ulimit -f 8; exec "$0" --input-type=module -e "$1" "$2" "$3"',
        process.execPath,
        code,
        module,
        directory,
      ],
      // The compiled code may be larger.
      { encoding: 'utf8', env: { ...process.env, NODE_DISABLE_COMPILE_CACHE: '1' } },
    )
    expect(out.trim().split(' ')).toEqual(Array.from({ length: 100 }, (_, n) => String(n)))
  })
})
