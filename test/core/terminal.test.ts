import { Writable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import {
  allowSequence,
  escapeControls,
  escapeControlsIn,
  guardStream,
  stripStyles,
} from '../../src/core/terminal.ts'

describe('escapeControls', () => {
  it.each([
    ['an escape sequence', '\u001b[31m', '\\u001b[31m'],
    ['a carriage return', 'a\rb', 'a\\u000db'],
    ['delete', '\u007f', '\\u007f'],
    ['a C1 control', '\u009b31m\u0085', '\\u009b31m\\u0085'],
    ['a bidirectional control', '\u202e\u2066\u200f\u061c', '\\u202e\\u2066\\u200f\\u061c'],
    ['a line separator', '\u2028\u2029', '\\u2028\\u2029'],
    ['a zero-width character', '\ufeff\u200b\u2060\u00ad', '\\ufeff\\u200b\\u2060\\u00ad'],
    ['a tag character', '\u{e0041}', '\\udb40\\udc41'],
    ['a blank letter', '\u3164\u115f', '\\u3164\\u115f'],
    ['a joiner without emoji', 'ac\u200dme\u200c', 'ac\\u200dme\\u200c'],
    ['a repeated joiner', '👩\u200d\u200d👧', '👩\u200d\\u200d👧'],
    ['a variation selector without effect', 'ac\ufe0fme\u{e0100}', 'ac\\ufe0fme\\udb40\\udd00'],
    ['text in variation selectors', '😀\ufe01\ufe02\u{e0142}', '😀\ufe01\\ufe02\\udb40\\udd42'],
    ['stacked combining marks', `a${'\u0301'.repeat(9)}b`, `a${'\u0301'.repeat(8)}\\u0301b`],
    ['a variation selector on a digit', '1\ufe01', '1\\ufe01'],
  ])('escapes %s', (_, text, shown) => {
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
  ])('keeps %j', (text) => {
    expect(escapeControls(text)).toBe(text)
  })

  it('does not change the value of JSON', () => {
    const value = { '\u009b\u{e0041}': 'a\u202e\u007f\u2028' }
    expect(JSON.parse(escapeControls(JSON.stringify(value)))).toEqual(value)
  })

  it('escapes anywhere in a value', () => {
    expect(escapeControlsIn({ 'a\u009b': ['\u001b', 1, null, { b: true }] })).toEqual({
      'a\\u009b': ['\\u001b', 1, null, { b: true }],
    })
  })
})

describe('a guarded stream', () => {
  function stream(isTTY: boolean) {
    const got: Buffer[] = []
    const write = (chunk: Buffer, _: string, done: () => void) => {
      got.push(chunk)
      done()
    }
    const out = Object.assign(new Writable({ write }), { isTTY })
    guardStream(out as unknown as NodeJS.WriteStream, () => {})
    return { out, text: () => Buffer.concat(got).toString('utf8') }
  }
  const red = allowSequence('\u001b[31m')

  it('passes allowed sequences to a terminal and escapes all others', () => {
    const { out, text } = stream(true)
    out.write(`${red}a\u001b[32mb\n`)
    expect(text()).toBe('\u001b[31ma\\u001b[32mb\n')
  })

  it('decodes bytes across writes', () => {
    const { out, text } = stream(true)
    const bytes = Buffer.from('é\u009b\u202e')
    for (const byte of bytes) out.write(Buffer.of(byte))
    out.write(Buffer.of(0x9b, 0x0a))
    expect(text()).toBe('é\\u009b\\u202e\ufffd\n')
  })

  it('passes bytes unchanged when it is no terminal', () => {
    const { out, text } = stream(false)
    out.write(`${red}a\u001b[32m\u009b\u202eb\r\n`)
    out.write(Buffer.from('\u009b'))
    expect(text()).toBe('\u001b[31ma\u001b[32m\u009b\u202eb\r\n\u009b')
  })

  it('calls back when a write is done', async () => {
    const { out } = stream(true)
    await new Promise<void>((resolve) => void out.write('a', () => resolve()))
    await new Promise<void>((resolve) => void out.write('a', 'utf8', () => resolve()))
  })

  it('does not accept the mark of another process', () => {
    const { out, text } = stream(true)
    out.write('\u001b<01234567-89ab-4def-8123-456789abcdef>\u001b[31m')
    expect(text()).not.toContain('\u001b')
    expect(stripStyles(`${red}a`)).toBe('a')
  })
})
