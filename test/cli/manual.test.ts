import { spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { withFieldTables } from '../../src/cli/config/field-tables.ts'
import { plainDisplay } from '../../src/cli/display.ts'
import { fitPage, manualPage, manualPages } from '../../src/cli/manual.ts'
import { displayWidth } from '../../src/cli/text-width.ts'
import { ConfigurationFile, sections } from '../../src/configuration/contract.ts'
import { toJsonSchema } from '../../src/core/openapi.ts'
import { root } from '../laws/imports.ts'
import { Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

type Described = { id: string; summary: string; flags: { name: string }[] }

let pages: string[] = []
let commands: Described[] = []

/** As they are before the pages are written. */
let listed: string[] = []
let fileFormat = ''

beforeAll(async () => {
  listed = (JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as { man: string[] }).man
  fileFormat = readFileSync(`${root}man/svc-config.5.md`, 'utf8')
  const { status, stderr } = spawnSync(process.execPath, ['build-man.js'], { cwd: root, encoding: 'utf8' })
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  pages = globSync(`${root}dist/man/*/*`)
  commands = JSON.parse((await home.run(['commands', '--json'])).stdout).data
})

const missing = (program: string) => spawnSync(program, ['--version']).error && `${program} is not installed`

describe('the man pages', () => {
  it('are one for each command, with its flags, and those of man/', () => {
    const names = pages.map((file) => basename(file))
    const subjects = globSync(`${root}man/*.md`).map((file) => basename(file, '.md'))
    expect(names).toEqual(expect.arrayContaining(['svc.1', ...subjects]))
    for (const { id, flags } of commands) {
      const page = pages.find((file) => file.endsWith(`/svc-${id.replaceAll(' ', '-')}.1`))!
      const text = readFileSync(page, 'utf8')
        .replaceAll(/\\f./g, '')
        .replaceAll('\\-', '-')
        .replaceAll(/\\\[[lr]B\]/g, '')
      for (const { name } of flags)
        expect({ id, text }).toMatchObject({ text: expect.stringMatching(`--(no-)?${name}\\b`) })
    }
  })

  it('are all listed in package.json', () => {
    const all = pages.map((file) => file.slice(root.length)).sort()
    expect(listed, 'npm run build:man lists them').toEqual(all)
  })

  it('have of svc-config(5) each field of each section, as the contract has it', () => {
    expect(fileFormat, 'npm run build:man writes them').toBe(withFieldTables(fileFormat))
    const { properties } = toJsonSchema(ConfigurationFile, 'input') as {
      properties: Record<string, { items: { properties: object; required: string[] } }>
    }
    expect(Object.keys(properties)).toEqual(sections)
    for (const section of sections) {
      const [, table = ''] = fileFormat.split(`\n### Fields of ${section}\n`)
      const rows = [...table.split('\n#')[0]!.matchAll(/^\| (\w+) \| (.+?) \| (.*?) \|$/gm)].slice(1)
      const { properties: fields, required } = properties[section]!.items
      const known = Object.keys(fields).filter((name) => name !== 'org' && name !== 'renamedFrom')
      expect(rows.map(([, name]) => name)).toEqual(known)
      for (const [row, name = '', value = '', description] of rows) {
        expect({ row, isDescribed: description !== '' }).toEqual({ row, isDescribed: true })
        if (required.includes(name)) expect(value).toMatch(/; required/)
      }
      // The prose says what its objects are called.
      expect(fileFormat).toMatch(new RegExp(`^\\| ${section} \\| ${required[0]}\\b`, 'm'))
    }
  })

  it.skipIf(missing('mandoc'))('have no fault that mandoc finds', () => {
    const { stdout } = spawnSync('mandoc', ['-T', 'lint', '-W', 'warning', ...pages], { encoding: 'utf8' })
    // A date of the build would make two builds of one source differ.
    const faults = stdout.split('\n').filter((line) => line && !line.includes('missing date'))
    expect(faults).toEqual([])
  })

  it.skipIf(missing('groff'))('have no fault that groff warns of, and fit 80 columns', () => {
    // What `man --warnings` runs for one page, here for all at once.
    const args = ['-k', '-t', '-mandoc', '-Tutf8', '-ww', '-rLL=78n', '-P-cbou', ...pages]
    const { stdout, stderr } = spawnSync('groff', args, { encoding: 'utf8', maxBuffer: 2 ** 26 })
    expect(stderr).toBe('')
    // Examples are shown as they are typed; they are set in by nine columns.
    const long = stdout.split('\n').filter((line) => line.length > 80 && !line.startsWith(' '.repeat(9)))
    expect(long).toEqual([])
    expect(stdout).toContain('SVC-WHOAMI(1)')
  })

  it.skipIf(missing('man'))('have no fault that man warns of', () => {
    const env = { ...home.env, MANWIDTH: '80', LANG: 'C.UTF-8' }
    for (const name of ['svc.1', 'svc-keys-create.1', 'svc-serve.8', 'svc-audit.7']) {
      const page = pages.find((file) => basename(file) === name)!
      const args = ['--warnings', '-E', 'UTF-8', '-l', page]
      expect({ name, ...spawnSync('man', args, { env, encoding: 'utf8' }) }).toMatchObject({
        name,
        stderr: '',
      })
    }
  })

  it('are what svc help shows', async () => {
    // In a pipe as well, and without marks of Markdown.
    const { stdout } = await home.run(['help', 'svc-trust'])
    expect(stdout).toBe(fitPage(readFileSync(`${root}man/svc-trust.7.md`, 'utf8'), plainDisplay))
    expect(stdout).toMatch(/^svc-trust\(7\): /)
    expect((await home.run(['help', 'svc-nothing'])).code).not.toBe(0)
  })

  it.each(manualPages())('%s fits a terminal, and loses no word', (name) => {
    const page = manualPage(name)!
    // Commands and examples can be copied as they are.
    const examples = new Set(page.split('\n'))
    const tooLong = (text: string, width: number) =>
      text.split('\n').filter((line) => displayWidth(line) > width && !examples.has(line))
    const fitted = fitPage(page, { ...plainDisplay, width: 80 })
    expect(tooLong(fitted, 80)).toEqual([])
    const plain = page.replace(/\[([^\]]+)\]\([^)]+\)/g, '$1').replaceAll(/^```\w*$/gm, '')
    const wordsOf = (text: string) => new Set(text.match(/[A-Za-z0-9_]+/g))
    const heads = new Set(plain.match(/^\|.*\|(?=\n\|[-:| ]+\|)/gm)?.flatMap((head) => [...wordsOf(head)]))
    const kept = wordsOf(fitted)
    expect([...wordsOf(plain)].filter((word) => !kept.has(word) && !heads.has(word))).toEqual([])
    const piped = fitPage(page, plainDisplay)
    expect(tooLong(piped, 100)).toEqual([])
    const prose = (text: string) => text.replaceAll(/^ {4}.*$/gm, '')
    for (const text of [fitted, piped]) expect(prose(text)).not.toMatch(/^(#|\||\*\*|```)|\*\*/m)
  })
})
