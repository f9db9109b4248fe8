import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import {
  allowSequence,
  escapeControls,
  escapeControlsIn,
  guardStream,
  stripStyles,
} from '../../src/core/terminal.ts'

describe('what is not seen', () => {
  it.each([
    ['an escape sequence', '\u001b[31m', '\\u001b[31m'],
    ['a return', 'a\rb', 'a\\u000db'],
    ['delete', '\u007f', '\\u007f'],
    ['C1', '\u009b31m\u0085', '\\u009b31m\\u0085'],
    ['what reorders', '\u202e\u2066\u200f\u061c', '\\u202e\\u2066\\u200f\\u061c'],
    ['what breaks lines', '\u2028\u2029', '\\u2028\\u2029'],
    ['what has no width', '\ufeff\u200b\u2060\u00ad', '\\ufeff\\u200b\\u2060\\u00ad'],
    ['tags', '\u{e0041}', '\\udb40\\udc41'],
    ['blanks that are letters', '\u3164\u115f', '\\u3164\\u115f'],
    ['a joiner that joins nothing', 'ac\u200dme\u200c', 'ac\\u200dme\\u200c'],
    ['a joiner of joiners', '👩\u200d\u200d👧', '👩\u200d\\u200d👧'],
    ['a selector that selects nothing', 'ac\ufe0fme\u{e0100}', 'ac\\ufe0fme\\udb40\\udd00'],
    ['text in selectors', '😀\ufe01\ufe02\u{e0142}', '😀\ufe01\\ufe02\\udb40\\udd42'],
    ['marks over other lines', `a${'\u0301'.repeat(9)}b`, `a${'\u0301'.repeat(8)}\\u0301b`],
    ['a selector no keycap has', '1\ufe01', '1\\ufe01'],
  ])('%s is made visible', (_, text, shown) => {
    expect(escapeControls(text)).toBe(shown)
    expect(escapeControls(shown)).toBe(shown)
  })

  it.each([
    'a\tb\n',
    'Zoë Ærøskøbing',
    '日本語',
    'می\u200cخواهم',
    '👩\u200d👩\u200d👧',
    '❤\ufe0f\u200d🔥',
    '1\ufe0f\u20e3',
    '葛\u{e0100}',
    'العربية',
  ])('%j is read as it is', (text) => {
    expect(escapeControls(text)).toBe(text)
  })

  it('stays the same string in JSON', () => {
    const value = { '\u009b\u{e0041}': 'a\u202e\u007f\u2028' }
    expect(JSON.parse(escapeControls(JSON.stringify(value)))).toEqual(value)
  })

  it('is made visible anywhere in a value', () => {
    expect(escapeControlsIn({ 'a\u009b': ['\u001b', 1, null, { b: true }] })).toEqual({
      'a\\u009b': ['\\u001b', 1, null, { b: true }],
    })
  })
})

describe('the door', () => {
  function stream(isTTY: boolean) {
    const got: Buffer[] = []
    const write = (chunk: Buffer, _: string, done: () => void) => {
      got.push(chunk)
      done()
    }
    const out = Object.assign(new Writable({ write }), { isTTY })
    guardStream(out as unknown as NodeJS.WriteStream)
    return { out, text: () => Buffer.concat(got).toString('utf8') }
  }
  const red = allowSequence('\u001b[31m')

  it('lets a terminal have the sequences of the program and no other', () => {
    const { out, text } = stream(true)
    out.write(`${red}a\u001b[32mb\n`)
    expect(text()).toBe('\u001b[31ma\\u001b[32mb\n')
  })

  it('reads bytes for what they are, over the borders of writes', () => {
    const { out, text } = stream(true)
    const bytes = Buffer.from('é\u009b\u202e')
    for (const byte of bytes) out.write(Buffer.of(byte))
    out.write(Buffer.of(0x9b, 0x0a))
    expect(text()).toBe('é\\u009b\\u202e\ufffd\n')
  })

  it('gives anything else the bytes', () => {
    const { out, text } = stream(false)
    out.write(`${red}a\u001b[32m\u009b\u202eb\r\n`)
    out.write(Buffer.from('\u009b'))
    expect(text()).toBe('\u001b[31ma\u001b[32m\u009b\u202eb\r\n\u009b')
  })

  it('tells when a write is over', async () => {
    const { out } = stream(true)
    await new Promise<void>((resolve) => void out.write('a', () => resolve()))
    await new Promise<void>((resolve) => void out.write('a', 'utf8', () => resolve()))
  })

  it('is not opened by what looks like the mark of another process', () => {
    const { out, text } = stream(true)
    out.write('\u001b<01234567-89ab-4def-8123-456789abcdef>\u001b[31m')
    expect(text()).not.toContain('\u001b')
    expect(stripStyles(`${red}a`)).toBe('a')
  })
})
