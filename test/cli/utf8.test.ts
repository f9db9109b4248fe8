import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { readTextFile } from '../../src/cli/ask.ts'
import { readConfiguration, readMergedFile } from '../../src/cli/config/files.ts'
import { decodeUtf8 } from '../../src/cli/utf8.ts'
import { Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

const write = (name: string, bytes: Buffer | string): string => {
  const path = join(home.path, name)
  writeFileSync(path, bytes)
  return path
}
const latin1 = (text: string) => Buffer.from(text, 'latin1')
const failure = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'none',
    ({ message }: Error) => message,
  )

describe('decodeUtf8', () => {
  it.each(['', 'é\n€ 😀', '\ufeffa', 'a\ufffdb'])('has text as it is: %j', (text) => {
    expect(decodeUtf8(Buffer.from(text))).toEqual({ text })
  })

  it.each([
    ['a letter of Latin-1', latin1('é\nx'), 1, 1],
    ['one after other characters', Buffer.concat([Buffer.from('é\r\n€x'), latin1('é is')]), 2, 3],
    ['a character that is cut by another', Buffer.from([0x61, 0xe2, 0x82, 0x41]), 1, 2],
    ['a character that is cut by the end', Buffer.from([0x0a, 0x61, 0xe2, 0x82]), 2, 2],
    ['half of a pair', Buffer.from([0x61, 0xed, 0xa0, 0x80]), 1, 2],
    ['UTF-16', Buffer.from('\ufeffab', 'utf16le'), 1, 1],
  ])('says where there is %s', (_, bytes, line, column) => {
    expect(decodeUtf8(bytes)).toEqual({ invalidAt: { line, column } })
  })
})

describe('a file that is not UTF-8', () => {
  it('is refused where a text is read', () => {
    const path = write('clean.sh', latin1('#!/bin/sh\necho café\n'))
    expect(() => readTextFile(path, '--content')).toThrow(
      `Cannot read --content from ${path}: line 2, column 9 is not UTF-8`,
    )
    expect(readTextFile(write('bom.sh', '\ufeffé'), '--content')).toBe('\ufeffé')
  })

  it('is a fault of a configuration, at its first byte and with those of other files', async () => {
    const latin = write('latin.yaml', latin1('sites:\n  - name: Café\n'))
    const broken = write('syntax.yaml', 'sites: [\n')
    const said = await failure(readConfiguration([latin, broken], {}))
    expect(said).toContain('The configuration has 2 faults')
    expect(said).toContain(`${latin}:2:14: this is not UTF-8`)
    expect(said).toContain(`${broken}:`)
    expect(() => readMergedFile(latin)).toThrow(`${latin}:2:14: this is not UTF-8`)
  })

  it('is a fault where a variable names it', async () => {
    write('key.bin', Buffer.from([0x61, 0xff, 0x00]))
    process.env.SVC_CONFIG_BROKEN = 'caf\ufffd'
    const path = write(
      'hooks.yaml',
      `webhooks:\n  - name: A\n    secret: \${file:key.bin}\n  - name: \${env:SVC_CONFIG_BROKEN}\n`,
    )
    const { faults } = await readConfiguration([path], {})
    expect(faults).toEqual([
      {
        file: path,
        line: 3,
        column: 5,
        message: 'key.bin is not UTF-8 (line 1, column 2), and a field takes text',
      },
      { file: path, line: 4, column: 5, message: 'the variable SVC_CONFIG_BROKEN is not UTF-8' },
    ])
    delete process.env.SVC_CONFIG_BROKEN
  })
})
