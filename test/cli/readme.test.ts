import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { root } from '../laws/imports.ts'

const textOf = (path: string) => readFileSync(root + path, 'utf8')
const { commands } = JSON.parse(textOf('oclif.manifest.json')) as {
  commands: Record<string, { flags: Record<string, { char?: string }> }>
}

const typed = (text: string) => [...text.matchAll(/^\$ (npx svc .*)$/gm)].map(([, line]) => line!)
const walk = typed(textOf('README.md')).map((line) => line.replace(/ {2,}#.*/, ''))

describe('the first walk of the README', () => {
  it('has commands and flags that there are', () => {
    expect(walk.length).toBeGreaterThan(8)
    for (const line of walk.flatMap((one) => one.split('| '))) {
      const words = line.match(/"[^"]*"|\S+/g)!.slice(2)
      const id = [3, 2, 1].map((n) => words.slice(0, n).join(':')).find((one) => Object.hasOwn(commands, one))
      expect([line, id]).not.toEqual([line, undefined])
      const { flags } = commands[id!]!
      const named = Object.values(flags).map(({ char }) => `-${char}`)
      const known = [...Object.keys(flags).map((name) => `--${name}`), ...named]
      expect(known).toEqual(expect.arrayContaining(words.filter((word) => /^--?\w/.test(word))))
    }
  })

  it('is recorded, command for command, on a terminal of 80 columns', () => {
    const recording = textOf('docs/first-walk.txt')
    expect(Math.max(...recording.split('\n').map((line) => [...line].length))).toBeLessThanOrEqual(80)
    // A terminal breaks a long line where it ends.
    const packed = (text: string) => text.replaceAll(/\s/g, '')
    const commandOf = (part: string) => walk.findIndex((line) => packed(part).startsWith(packed(line)))
    const recorded = recording
      .split(/^\$ /m)
      .slice(1)
      .map((part) => [part.split('\n')[0], commandOf(part)])
    expect(recorded.map(([, at]) => at)).toEqual(walk.map((_, at) => at))
  })
})
