import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import {
  type Checkpoint,
  checkpointText,
  keyIdOf,
  openCheckpoint,
  openSuccession,
  signCheckpoint,
  signingKeyOf,
  signSuccession,
  trustedKeys,
} from '../../src/audit/checkpoints/checkpoint.ts'
import {
  isSignedBy,
  parseNote,
  parseVerifier,
  verifierText,
} from '../../src/audit/checkpoints/signed-note.ts'

const orgId = '0197c1c8-3f72-7bac-8d21-4e6a8c0f2a55'
const time = '2026-01-31T12:00:00.000Z'
const checkpoint: Checkpoint = {
  orgId,
  kind: 'checkpoint',
  head: { seq: 42, checksum: 'ab'.repeat(32) },
  root: Buffer.alloc(32, 7),
  time,
}
const seed = Buffer.alloc(32, 1)
const publicKey = signingKeyOf(seed, orgId).publicKey

describe('a signed note', () => {
  // The example of the signed-note specification.
  const note =
    'This is an example message.\n\n' +
    '— example.com/foo QqeLKJwgw8chGKeSN6tUXxXWELGmTPE5xLXlc0Jr/p87PYhpRQO0QOqAXPeBblJLYVBRgQQ9s4dzxmg0BuKXHsFU+gM=\n'

  it('is parsed into text and signatures', () => {
    const parsed = parseNote(note)
    expect(parsed?.text).toBe('This is an example message.\n')
    expect(parsed?.signatures).toMatchObject([{ name: 'example.com/foo' }])
  })

  it('is refused when anything about it is malformed', () => {
    for (const bad of ['', 'x', 'x\n', 'x\n\n', note.slice(0, -1), note.replace('— ', '- '), `${note}x\n`])
      expect(parseNote(bad)).toBeUndefined()
  })
})

describe('the signatures of a note', () => {
  const note = signCheckpoint(checkpoint, seed)
  const key = signingKeyOf(seed, orgId)

  it('may include those of other signers, of any type', () => {
    const witness = `— witness.example.com/w1 ${Buffer.alloc(76, 3).toString('base64')}\n`
    expect(isSignedBy(parseNote(note + witness)!, key)).toBe(true)
  })

  it('include no false one in the name of a known key', () => {
    const forged = note.split('\n').at(-2)!.split(' ')
    const bytes = Buffer.from(forged[2]!, 'base64').fill(1, 4)
    expect(isSignedBy(parseNote(`${note}— ${forged[1]} ${bytes.toString('base64')}\n`)!, key)).toBe(false)
  })
})

describe('a verifier key', () => {
  it('is written as one line and parsed back', () => {
    const key = signingKeyOf(seed, orgId)
    const text = verifierText(key)
    expect(text).toMatch(new RegExp(`^svc/audit/${orgId}\\+[0-9a-f]{8}\\+A[A-Za-z0-9+/]{43}$`))
    expect(parseVerifier(text)).toEqual({ name: key.name, publicKey })
    expect(parseVerifier(text.replace(orgId, 'system'))).toBeUndefined()
    expect(parseVerifier(`${text}A`)).toBeUndefined()
  })
})

describe('a checkpoint', () => {
  it('contains size, root, head and time, and is signed for its own chain only', () => {
    const note = signCheckpoint(checkpoint, seed)
    expect(note.split('\n').slice(0, 6)).toEqual([
      `svc/audit/${orgId}`,
      '42',
      'BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=',
      `head ${'ab'.repeat(32)}`,
      `time ${time}`,
      '',
    ])
    expect(openCheckpoint(note, [publicKey])).toEqual({ state: 'signed', checkpoint, publicKey })
    const moved = note.replaceAll(orgId, orgId.replace('0', '1'))
    expect(openCheckpoint(moved, [publicKey])).toMatchObject({ state: 'foreign' })
  })

  it('is foreign to any other key, and its signature covers no other text', () => {
    const note = signCheckpoint(checkpoint, seed)
    const other = signingKeyOf(Buffer.alloc(32, 2), orgId).publicKey
    expect(openCheckpoint(note, [other])).toEqual({
      state: 'foreign',
      checkpoint,
      keyIds: [keyIdOf(publicKey, orgId)],
    })
    expect(openCheckpoint(note.replace('\n42\n', '\n43\n'), [publicKey])).toMatchObject({ state: 'foreign' })
    expect(openCheckpoint(note.replace('head ', 'head  '), [publicKey])).toEqual({ state: 'unreadable' })
    expect(isSignedBy(parseNote(note)!, signingKeyOf(seed, null))).toBe(false)
  })

  it('cannot be mistaken for an anchor', () => {
    const anchor = { ...checkpoint, kind: 'anchor' as const }
    expect(checkpointText(anchor)).toBe(`${checkpointText(checkpoint)}pruned\n`)
    expect(openCheckpoint(signCheckpoint(anchor, seed), [publicKey])).toMatchObject({ checkpoint: anchor })
  })
})

describe('a succession of keys', () => {
  const keys = Array.from({ length: 4 }, () => randomBytes(32))
  const [first, second, third, stranger] = keys.map((one) => signingKeyOf(one, null).publicKey)
  const notes = [
    signSuccession(keys[0]!, keys[1]!, time),
    signSuccession(keys[1]!, keys[2]!, time),
    signSuccession(keys[3]!, keys[3]!, time),
  ]

  it('extends the trust in one of its keys to all of them, and to no others', () => {
    for (const trusted of [first, second, third]) {
      const all = trustedKeys([trusted!], notes)
      expect(all).toHaveLength(3)
      expect(all).not.toContainEqual(stranger)
    }
    expect(trustedKeys([stranger!], notes)).toEqual([stranger])
  })

  it('counts only when both keys have signed it', () => {
    const [, from, to] = notes[0]!.split('\n— ')
    expect(openSuccession(`${notes[0]!.split('\n— ')[0]}\n— ${from}\n`)).toBeUndefined()
    expect(openSuccession(`${notes[0]!.split('\n— ')[0]}\n— ${to}`)).toBeUndefined()
    expect(openSuccession(notes[0]!)).toMatchObject({ from: first, to: second, time })
  })
})
