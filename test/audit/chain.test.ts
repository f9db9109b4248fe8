import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type ChainEntry,
  canonicalJson,
  canonicalText,
  checksumOf,
  entryLine,
  genesisChecksum,
  headerLine,
  trailerLine,
} from '../../src/audit/chain.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'

const orgId = '01920000-0000-7000-8000-000000000001'

function entry(seq: number, prevChecksum: string, more: Partial<ChainEntry> = {}): ChainEntry {
  return {
    id: `01920000-0000-7000-8000-${String(seq).padStart(12, '0')}`,
    orgId,
    seq,
    timestamp: `2026-03-01T12:00:${String(seq).padStart(2, '0')}.000Z`,
    actorType: 'user',
    actorId: orgId,
    actorEmail: 'zoë@example.com',
    action: 'site.create',
    resourceType: 'site',
    resourceId: null,
    resourceName: 'Größe "1"',
    // As similar to the fields of the entry as a caller can make them.
    details: { prevChecksum: genesisChecksum, text: '"prevChecksum":"x","seq":1,"timestamp":"' },
    ipAddress: '127.0.0.1',
    userAgent: null,
    result: 'success',
    errorMessage: null,
    prevChecksum,
    ...more,
  }
}

/** Lines of a chain: header, entries, trailer. */
function chain(
  length: number,
  more: (seq: number, link: string) => Partial<ChainEntry> = () => ({}),
): string[] {
  const lines = [headerLine(orgId)]
  let link = genesisChecksum
  for (let seq = 1; seq <= length; seq += 1) {
    const text = canonicalText(entry(seq, link, more(seq, link)))
    link = checksumOf(text)
    lines.push(entryLine(link, text))
  }
  return [...lines, trailerLine({ seq: length, checksum: link })]
}

it('canonical entries follow RFC 8785', () => {
  const texts = fc.string({ unit: 'grapheme' })
  const anything = {
    details: fc.dictionary(texts, fc.jsonValue({ stringUnit: 'grapheme' })),
    userAgent: texts,
  }
  fc.assert(
    fc.property(fc.record(anything), (more) => {
      const one = entry(7, genesisChecksum, more as Partial<ChainEntry>)
      expect(canonicalText(one)).toBe(canonicalJson(one))
    }),
  )
})

function verify(lines: string[], chunk = 1 << 16): Verdict {
  const verifier = new ChainVerifier()
  const bytes = Buffer.from(lines.join(''))
  for (let at = 0; at < bytes.length; at += chunk) {
    const verdict = verifier.push(bytes.subarray(at, at + chunk))
    if (verdict) return verdict
  }
  return verifier.end()
}

const faultOf = (lines: string[]) => {
  const verdict = verify(lines)
  return verdict.verdict === 'sound'
    ? 'sound'
    : { verdict: verdict.verdict, kind: verdict.fault.kind, seq: verdict.fault.seq }
}

/** The same entry with a changed text and a matching checksum. */
const forged = (line: string, from: string, to: string) => {
  const text = line.slice('{"checksum":"'.length + 64 + '","entry":'.length, -2).replace(from, to)
  return entryLine(checksumOf(text), text)
}

describe('a chain', () => {
  it('that is unchanged is sound, in chunks of any size', () => {
    const lines = chain(20)
    for (const size of [1, 7, 64, 1000, 1 << 20]) {
      expect(verify(lines, size)).toMatchObject({ verdict: 'sound', orgId, entries: 20, head: { seq: 20 } })
    }
  })

  it('without entries is sound', () => {
    expect(verify(chain(0))).toMatchObject({ verdict: 'sound', entries: 0 })
  })

  it('reveals any single changed byte', () => {
    const bytes = Buffer.from(chain(3).join(''))
    const header = Buffer.byteLength(headerLine(orgId))
    for (let at = header; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes)
      changed[at] = changed[at]! ^ 1
      const verifier = new ChainVerifier()
      const verdict = verifier.push(changed) ?? verifier.end()
      expect(verdict.verdict, `byte ${at}`).not.toBe('sound')
    }
  })

  it('names the first entry that is altered, missing, inserted, swapped or relinked', () => {
    const lines = chain(9)
    const at = (seq: number) => lines[seq]!
    expect(faultOf(lines.with(4, at(4).replace('site.create', 'site.delete')))).toEqual({
      verdict: 'tampered',
      kind: 'altered',
      seq: 4,
    })
    expect(faultOf(lines.toSpliced(4, 1))).toMatchObject({ kind: 'missing', seq: 4 })
    expect(faultOf(lines.toSpliced(4, 3))).toMatchObject({ kind: 'missing', seq: 4 })
    expect(faultOf(lines.toSpliced(4, 0, at(2)))).toMatchObject({ kind: 'inserted', seq: 4 })
    expect(faultOf(lines.with(4, at(5)).with(5, at(4)))).toMatchObject({ kind: 'reordered', seq: 4 })
    expect(faultOf(lines.with(4, forged(at(4), 'site.create', 'site.delete')))).toMatchObject({
      kind: 'relinked',
      seq: 5,
    })
    expect(faultOf(lines.with(4, forged(at(4), '8000-000000000001"', '8000-000000000002"')))).toBeDefined()
    expect(faultOf(lines.with(9, forged(at(9), 'site.create', 'site.delete')))).toMatchObject({
      kind: 'rewritten',
    })
  })

  it('names the first faulty entry at any position of a long chain', () => {
    const lines = chain(200)
    expect(faultOf(lines)).toBe('sound')
    for (let seq = 1; seq <= 200; seq++) {
      const line = lines[seq]!
      const altered = lines.with(seq, line.replace('site.create', 'site.delete'))
      expect(faultOf(altered)).toEqual({ verdict: 'tampered', kind: 'altered', seq })
      const relinked = faultOf(lines.with(seq, forged(line, 'site.create', 'site.delete')))
      const kind = seq === 200 ? 'rewritten' : 'relinked'
      expect(relinked).toMatchObject({ kind, seq: Math.min(seq + 1, 200) })
    }
  })

  it('is linked by the fields of its entries, not by similar text in their details', () => {
    const other = checksumOf('something else')
    /** From entry `from` on, the details contain the link `right`, and the entry itself the link `own`. */
    const twofold = (from: number, right: (link: string) => string, own: (link: string) => string) =>
      chain(100, (seq, link) => {
        const tail = { resourceId: null, result: 'success', seq, timestamp: '', userAgent: null }
        const details = { a: 1, orgId, prevChecksum: right(link), ...tail }
        return seq < from ? { details } : { details, prevChecksum: own(link) }
      })
    const itself = (link: string) => link
    const not = () => other
    expect(faultOf(twofold(1, not, itself))).toBe('sound')
    for (const from of [1, 2, 63, 64, 65, 66, 100])
      expect(faultOf(twofold(from, itself, not))).not.toBe('sound')
  })

  it('is read the same after any preceding line, even if a line is malformed', () => {
    const other = checksumOf('something else')
    const tail = (seq: number, link: string) =>
      `{"orgId":"${orgId}","prevChecksum":"${link}","result":"success","seq":${seq},"timestamp":""}`
    /** The 100th of 200 entries has fields of an entry in place of its last field. */
    const odd = (fields: (link: string) => string) => {
      const texts: string[] = []
      let link = genesisChecksum
      for (let seq = 1; seq <= 200; seq++) {
        const text = canonicalText(entry(seq, link))
        texts.push(seq === 100 ? text.replace('"userAgent":null', `"userAgent":${fields(link)}`) : text)
        link = checksumOf(texts.at(-1)!)
      }
      const lines = texts.map((text) => entryLine(checksumOf(text), text))
      return [headerLine(orgId), ...lines, trailerLine({ seq: 200, checksum: link })]
    }
    expect(faultOf(odd(() => 'null'))).toBe('sound')
    expect(faultOf(odd((link) => tail(100, link)))).toBe('sound')
    expect(faultOf(odd(() => tail(100, other)))).not.toBe('sound')
    expect(faultOf(odd((link) => tail(101, link)))).not.toBe('sound')
    expect(faultOf(odd(() => `{"prevChecksum":"${other}"}`))).not.toBe('sound')
    expect(faultOf(odd(() => '{"timestamp":"","timestamp":""}'))).not.toBe('sound')
  })

  it('is parsed correctly with field names inside other values at any offset', () => {
    const near = ['"prevChecksum":', '"timestamp":', 'prevChecksum', '"pr', '":"', ',"timestamp":"']
    const lines = chain(200, (seq) => ({
      userAgent: near[seq % near.length]! + 'C'.repeat(seq % 31),
      resourceName: 'n'.repeat(seq % 17),
    }))
    expect(faultOf(lines)).toBe('sound')
  })

  it('counts entries correctly for numbers of any length, with any text behind them', () => {
    const agents = [null, 'svc', 'Mozilla/5.0 (CCCC)'.repeat(20), '"prevChecksum":"']
    const lines = chain(1100, (seq) => ({
      userAgent: agents[seq % 4]!,
      timestamp: '2026-03-01T12:00:00.000Z',
    }))
    expect(faultOf(lines)).toBe('sound')
    for (const seq of [9, 10, 11, 99, 100, 999, 1000]) {
      for (const instead of [seq + 1, seq - 1, `0${seq}`, seq + 0.5, `-${seq}`])
        expect(faultOf(lines.with(seq, forged(lines[seq]!, `"seq":${seq},`, `"seq":${instead},`)))).not.toBe(
          'sound',
        )
    }
  })

  it('reveals entries cut off at its end', () => {
    expect(faultOf(chain(9).toSpliced(8, 2))).toMatchObject({ kind: 'truncated', seq: 8 })
  })

  it('reveals entries of another organization', () => {
    const text = canonicalText(entry(1, genesisChecksum, { orgId: null }))
    const checksum = checksumOf(text)
    const lines = [headerLine(orgId), entryLine(checksum, text), trailerLine({ seq: 1, checksum })]
    expect(faultOf(lines)).toMatchObject({ kind: 'foreign', seq: 1 })
  })

  it('is unverifiable when the file is empty, truncated or not a chain', () => {
    expect(verify([]).verdict).toBe('unverifiable')
    expect(verify(['hello\n']).verdict).toBe('unverifiable')
    const lines = chain(5)
    const text = lines.join('')
    expect(verify(lines.slice(0, -1)).verdict).toBe('unverifiable')
    for (let end = 1; end < text.length - 1; end += 1)
      expect(verify([text.slice(0, end)]).verdict).toBe('unverifiable')
    expect(verify([text.slice(0, -1)]).verdict).toBe('sound')
  })

  it('names entry, action and time of a fault', () => {
    const lines = chain(3)
    expect(verify(lines.with(2, lines[2]!.replace('site.create', 'site.delete')))).toMatchObject({
      fault: { entry: { id: entry(2, '').id, action: 'site.delete', timestamp: '2026-03-01T12:00:02.000Z' } },
    })
  })
})
