import { readFileSync, writeFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { ServeProcess, serviceEnv } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { adminPassword } from '../harness.ts'
import { root } from '../laws/imports.ts'
import { comparable, recordWalk } from './first-walk.ts'
import { manifestCommands } from './manifest.ts'
import { noTerminal } from './run.ts'

const isUpdate = process.env.UPDATE_GOLDEN !== undefined

const textOf = (path: string) => readFileSync(root + path, 'utf8')
const commands = manifestCommands<{ flags: Record<string, { char?: string }> }>()

/** Each command of the README with what it prints, as far as the README shows it. */
const blocks = [...textOf('README.md').matchAll(/^```console\n(.*?)^```/gms)].flatMap(([, block]) =>
  block!.split(/^(?=\$ )/m),
)
const quoted = (text: string) => text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
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

  it.skipIf(noTerminal)(
    'shows on a terminal of 80 columns what docs/first-walk.txt and the README say',
    async () => {
      const dataDir = await temporaryFolder()
      const port = isUpdate ? '3000' : '0'
      const service = new ServeProcess(
        { dataDir },
        { env: { ...serviceEnv, SVC_ADMIN_EMAIL: 'admin@localhost', PORT: port } },
      )
      const url = await service.listening()
      const walked = await recordWalk(walk, { url, dataDir, password: adminPassword })
      const text = walked.map(({ screen }) => screen).join('')
      if (isUpdate) writeFileSync(`${root}docs/first-walk.txt`, text)
      expect(comparable(textOf('docs/first-walk.txt')), 'npm run golden records it again').toBe(
        comparable(text),
      )
      for (const [at, part] of blocks.entries()) {
        const [, ...lines] = part.trim().split('\n')
        // A line of its own stands for any number of lines.
        const parts = lines
          .join('\n')
          .split(/^…$/m)
          .map((some) => quoted(comparable(some)))
        if (lines.length > 0)
          expect(comparable(walked[at]!.screen)).toMatch(new RegExp(`${parts.join('.*')}$`))
      }
    },
  )
})
