import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { checksumOf, entryLine, headerLine } from '../../src/audit/chain.ts'
import { signingKeyOf, signSuccession } from '../../src/audit/checkpoints/checkpoint.ts'
import { type Pin, toPin } from '../../src/audit/verifier/pins.ts'
import type { SoundVerdict } from '../../src/audit/verifier/verdict.ts'
import type { VerifierOptions } from '../../src/audit/verifier/verifier.ts'
import {
  anchorOver,
  bundle,
  bytesOf,
  kindOf,
  noteOver,
  orgId,
  otherOrg,
  otherSeed,
  type Sealed,
  sealed,
  seed,
  time,
  verified,
} from './bundles.ts'

const key = signingKeyOf(seed, orgId).publicKey
const newest = 100
const size = 220
const entries = sealed(size)
const good = bundle(entries)
const edited = (seq: number) => sealed(size, (at) => (at === seq ? { action: 'site.delete' } : {}))

/** The pin of the chain when it had `count` entries. */
function pinAt(count: number, keys?: Buffer[]): Pin {
  const verdict = verified(bundle(entries.slice(0, count)), { keys })
  return toPin(verdict as SoundVerdict, time)
}
const pin = pinAt(150)
const signedPin = pinAt(150, [key])

const levels: [name: string, trust: VerifierOptions][] = [
  ['the chain alone', {}],
  ['`--key`', { keys: [key] }],
  ['`--pin`', { pinOf: () => pin }],
  ['`--key --pin`', { keys: [key], pinOf: () => signedPin }],
]

/** The lines with another checkpoint in the last line. */
function checkpointed(lines: string[], note: string | undefined): string[] {
  const { head } = JSON.parse(lines.at(-1)!)
  return lines.with(-1, `${JSON.stringify({ head, checkpoint: note })}\n`)
}

/** An entry with a changed text and a matching checksum. */
function reworded({ text }: Sealed): string {
  const other = text.replace('site.create', 'site.delete')
  return entryLine(checksumOf(other), other)
}

const prunedWithout = (more: object) => {
  const whole = bundle(entries, { pruned: 60 })
  return whole.with(0, headerLine(orgId, more))
}

const shorter = entries.slice(0, size - newest)
const goodNote = noteOver(entries, seed)
const others = sealed(size, () => ({}), otherOrg)
const cut = bytesOf(good).subarray(0, -40)

/** What an attacker does, and what each level detects; `sound` means not detectable there. */
const attacks: [what: string, file: string[] | Buffer, found: [string, string, string, string]][] = [
  [
    'a byte of an entry changed',
    good.with(30, good[30]!.replace('site.create', 'site.creatf')),
    ['altered', 'altered', 'altered', 'altered'],
  ],
  ['an entry taken out', good.toSpliced(30, 1), ['missing', 'missing', 'missing', 'missing']],
  ['an entry put in', good.toSpliced(30, 0, good[12]!), ['inserted', 'inserted', 'inserted', 'inserted']],
  [
    'two entries swapped',
    good.with(30, good[40]!).with(40, good[30]!),
    ['reordered', 'reordered', 'reordered', 'reordered'],
  ],
  [
    'an entry edited, its checksum fitted',
    good.with(30, reworded(entries[29]!)),
    ['relinked', 'relinked', 'relinked', 'relinked'],
  ],
  [
    'entries of another chain',
    good.with(30, bundle(others, { org: otherOrg })[30]!),
    ['foreign', 'foreign', 'foreign', 'foreign'],
  ],
  [
    'an entry edited, all after it chained anew, the checkpoint kept',
    checkpointed(bundle(edited(30)), goodNote),
    ['rewritten', 'rewritten', 'rewritten', 'rewritten'],
  ],
  [
    '… the checkpoint taken out',
    bundle(edited(30), { by: null }),
    ['sound', 'unsigned', 'rewritten', 'rewritten'],
  ],
  [
    '… signed with another key',
    bundle(edited(30), { by: otherSeed }),
    ['sound', 'wrong_key', 'rewritten', 'rewritten'],
  ],
  ['… signed with the key of the service', bundle(edited(30)), ['sound', 'sound', 'rewritten', 'rewritten']],
  [
    '… the same, of the size last seen',
    bundle(edited(30).slice(0, 150)),
    ['sound', 'sound', 'rewritten', 'forked'],
  ],
  [
    'the newest 100 taken out, the last line fitted, the checkpoint kept',
    checkpointed(bundle(shorter), goodNote),
    ['truncated', 'truncated', 'truncated', 'truncated'],
  ],
  [
    '… the checkpoint taken out',
    bundle(shorter, { by: null }),
    ['sound', 'unsigned', 'truncated', 'truncated'],
  ],
  [
    'an older database, as it was signed then',
    bundle(entries.slice(0, size - newest)),
    ['sound', 'sound', 'truncated', 'truncated'],
  ],
  [
    'the chain untouched, signed with another key',
    bundle(entries, { by: otherSeed }),
    ['sound', 'wrong_key', 'sound', 'wrong_key'],
  ],
  [
    'the checkpoint of another chain',
    checkpointed(good, noteOver(others, seed, 'checkpoint', otherOrg)),
    ['foreign', 'foreign', 'foreign', 'foreign'],
  ],
  ['the beginning taken out', prunedWithout({}), ['unanchored', 'unanchored', 'unanchored', 'unanchored']],
  [
    '… with an anchor signed by another key',
    prunedWithout({ anchor: anchorOver(entries.slice(0, 60), otherSeed) }),
    ['sound', 'wrong_key', 'sound', 'wrong_key'],
  ],
  [
    '… with the anchor of another chain',
    prunedWithout({ anchor: anchorOver(others.slice(0, 60), seed, otherOrg) }),
    ['foreign', 'foreign', 'foreign', 'foreign'],
  ],
  [
    '… with an older anchor',
    prunedWithout({ anchor: anchorOver(entries.slice(0, 40), seed) }),
    ['missing', 'missing', 'missing', 'missing'],
  ],
  ['the file cut', cut, ['unreadable', 'unreadable', 'unreadable', 'unreadable']],
]

const page = readFileSync(new URL('../../man/svc-audit.7.md', import.meta.url), 'utf8')

describe('tampering with a chain', () => {
  it.each(attacks)('%s: is detected and named where it can be', (_, file, found) => {
    expect(levels.map(([, trust]) => kindOf(verified(file, trust)))).toEqual(found)
  })

  it('is documented in the manual as it is detected', () => {
    const head = ['What was done', ...levels.map(([name]) => name)]
    const rows = attacks.map(([what, , found]) => [
      what,
      ...found.map((kind) => (kind === 'sound' ? '–' : kind)),
    ])
    const table = [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`)
    expect(page).toContain(`\n${table.join('\n')}\n\n`)
  })

  it('is not reported for an unchanged chain', () => {
    for (const [, trust] of levels) {
      expect(kindOf(verified(good, trust))).toBe('sound')
      expect(kindOf(verified(bundle(entries, { pruned: 60 }), { ...trust, tree: true }))).toBe('sound')
      expect(kindOf(verified(bundle(entries, { pruned: 150 }), trust))).toBe('sound')
    }
    expect(kindOf(verified(bundle(entries, { by: null })))).toBe('sound')
  })
})

describe('any chain', () => {
  const texts = fc.string({ unit: 'grapheme', maxLength: 60 })
  const change = fc.record(
    {
      action: texts,
      resourceName: fc.option(texts),
      userAgent: fc.option(texts),
      errorMessage: fc.option(texts),
      details: fc.dictionary(texts, fc.jsonValue()) as fc.Arbitrary<Record<string, unknown>>,
    },
    { requiredKeys: [] },
  )

  it('that is unchanged is sound, in chunks of any size', () => {
    fc.assert(
      fc.property(
        fc.array(change, { maxLength: 12 }),
        fc.nat({ max: 12 }),
        fc.integer({ min: 1, max: 5000 }),
        fc.constantFrom(null, orgId),
        (changes, removed, chunk, org) => {
          const all = sealed(changes.length, (seq) => changes[seq - 1]!, org)
          const lines = bundle(all, { org, pruned: Math.min(removed, all.length) })
          expect(verified(lines, { keys: [key], tree: true }, chunk)).toMatchObject({
            verdict: 'sound',
            head: { seq: all.length },
            checkpoint: { state: 'signed' },
          })
        },
      ),
    )
  })
})

describe('a single byte', () => {
  const later = Buffer.alloc(32, 3)
  const successions = [signSuccession(seed, later, time)]
  const bytes = bytesOf(bundle(sealed(2), { pruned: 1, by: later, anchoredBy: seed, successions }))

  it.each([
    ['a signed chain', bytes, { keys: [key] }],
    ['a chain alone', bytesOf(bundle(sealed(4), { by: null })), {}],
  ])('of %s that changed is detected at any position', (_, whole, trust) => {
    expect(kindOf(verified(whole, trust))).toBe('sound')
    for (let at = 0; at < whole.length; at += 1) {
      const changed = Buffer.from(whole)
      changed[at] = changed[at]! ^ (at % 3 ? 1 : 1 + ((at * 7) % 255))
      expect(kindOf(verified(changed, trust)), `byte ${at}`).not.toBe('sound')
    }
  })

  it('that is missing at the end makes the file unverifiable', () => {
    for (let end = 0; end < bytes.length - 1; end += end < 100 ? 1 : 7) {
      expect(verified(bytes.subarray(0, end), { keys: [key] }).verdict, `${end} bytes`).toBe('unverifiable')
    }
    // Only the end of the last line.
    expect(kindOf(verified(bytes.subarray(0, -1), { keys: [key] }))).toBe('sound')
  })
})

describe('keys', () => {
  const later = Buffer.alloc(32, 3)
  const lines = bundle(entries, { by: later, successions: [signSuccession(seed, later, time)] })

  it('that were succeeded extend their trust, and no others do', () => {
    expect(kindOf(verified(lines, { keys: [key] }))).toBe('sound')
    expect(kindOf(verified(lines, { keys: [signingKeyOf(otherSeed, orgId).publicKey] }))).toBe('wrong_key')
    expect(kindOf(verified(bundle(entries, { by: later }), { keys: [key] }))).toBe('wrong_key')
  })

  it('are remembered by a pin, which reveals another key without --key', () => {
    const pinned = { pinOf: () => signedPin }
    expect(kindOf(verified(good, pinned))).toBe('sound')
    expect(kindOf(verified(lines, pinned))).toBe('sound')
    expect(kindOf(verified(bundle(entries, { by: otherSeed }), pinned))).toBe('wrong_key')
    // If a user trusts another key, the verdict still says that the pin has a different one.
    const other = { keys: [signingKeyOf(otherSeed, orgId).publicKey], ...pinned }
    expect(kindOf(verified(bundle(entries, { by: otherSeed }), other))).toBe('wrong_key')
  })

  it('that are unknown leave open whether the chain is sound, and hide no fault', () => {
    const unknown = { keys: [signingKeyOf(otherSeed, orgId).publicKey] }
    expect(verified(good, unknown).verdict).toBe('unverifiable')
    expect(verified(bundle(entries, { pruned: 60 }), unknown).verdict).toBe('unverifiable')
    const reordered = good.with(30, good[40]!).with(40, good[30]!)
    expect(verified(reordered, unknown)).toMatchObject({ verdict: 'tampered', fault: { kind: 'reordered' } })
    const forged = bundle(edited(30), { by: otherSeed, pruned: 20, anchoredBy: otherSeed })
    for (const pinOf of [() => pin, () => signedPin])
      expect(verified(forged, { keys: [key], pinOf })).toMatchObject({
        verdict: 'tampered',
        fault: { kind: 'rewritten' },
      })
  })
})

describe('a pin of entries that retention has removed', () => {
  const later = bundle(entries, { pruned: 180 })

  it('is vouched for by the signed anchor', () => {
    expect(verified(later, { keys: [key], pinOf: () => signedPin })).toMatchObject({ pin: 'vouched' })
  })

  it('is unverifiable as long as no signature is checked', () => {
    const verdict = verified(later, { pinOf: () => pin })
    expect(verdict).toMatchObject({ verdict: 'unverifiable', fault: { kind: 'unanchored', seq: 150 } })
  })
})

describe('the tree', () => {
  it('matches the checkpoint, even after the beginning was removed', () => {
    const root = noteOver(entries, seed).split('\n')[2]
    for (const pruned of [0, 1, 64, 100, size]) {
      expect(verified(bundle(entries, { pruned }), { tree: true })).toMatchObject({ verdict: 'sound', root })
    }
  })

  it('with the signed head and another root is a fork', () => {
    const text = noteOver(entries, seed)
    const wrong = noteOver(edited(30), seed).replace(/head .*/, /head .*/.exec(text)![0])
    expect(kindOf(verified(checkpointed(good, wrong), { tree: true }))).toBe('forked')
  })
})
