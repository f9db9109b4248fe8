import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { api, sections } from '../../src/api.ts'
import { entriesOf } from '../../src/core/endpoint.ts'
import { openApiOf } from '../../src/core/openapi.ts'
import { manifestCommands } from '../cli/manifest.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { startService } from '../harness.ts'
import { expectGolden, routeTable } from './golden.ts'
import { root } from './imports.ts'
import { Line } from './wire.ts'

const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }

type Problems = { totals: { errors: number; warnings: number; ignored: number }; problems: unknown[] }

/** The findings of @redocly/cli with its recommended rules; no rule is disabled. */
async function lint(document: unknown): Promise<Problems> {
  const folder = await temporaryFolder()
  const file = join(folder, 'openapi.json')
  writeFileSync(file, JSON.stringify(document))
  const cli = join(root, 'node_modules/@redocly/cli/bin/cli.js')
  const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' }
  const args = [cli, 'lint', file, '--extends', 'recommended', '--format', 'json']
  const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: folder, env }).catch(
    (failed) => failed,
  )
  const { totals, problems } = JSON.parse(stdout) as Problems
  return { totals, problems }
}

const clean = { totals: { errors: 0, warnings: 0, ignored: 0 }, problems: [] }

async function served(): Promise<Record<string, unknown>> {
  const service = await startService(() => openMigrated('sqlite'))
  const line = new Line(service.url)
  const { text } = await line.send({ method: 'GET', path: '/api/v1/openapi.json' })
  await line.close()
  await service.close()
  return JSON.parse(text)
}

describe('the OpenAPI document', () => {
  it('equals its golden file, and has no lint errors', async () => {
    const document = await served()
    const info = { ...(document.info as object), version: '0.0.0' }
    expectGolden('openapi.golden.json', `${JSON.stringify({ ...document, info }, null, 2)}\n`)
    expect(await lint(document)).toEqual(clean)
  })

  it('would fail the lint with a broken operation', async () => {
    const { tags: _, ...document } = await openApiOf(
      api,
      { title: 'svc', version: '0', description: 'x' },
      sections,
    )
    const broken = { ...document, paths: { '/orgs/': { get: { responses: {} } } } }
    expect((await lint(broken)).totals.errors).toBeGreaterThan(0)
  })

  it('describes exactly the sections with entries', () => {
    const tags = new Set(entriesOf(api).map(({ entry }) => entry.tag))
    expect(Object.keys(sections).sort()).toEqual([...tags].sort())
  })
})

describe('the route table', () => {
  it('equals its golden file', () => {
    expectGolden('routes.golden.txt', routeTable(api))
  })
})

const binary = join(root, 'bin/svc.js')

/** Prints the `--help` of the given command lines, all in one process. */
const asking = `
import { Program } from ${JSON.stringify(pathToFileURL(join(root, 'src/cli/program.ts')))}
import Help from ${JSON.stringify(pathToFileURL(join(root, 'src/cli/help.ts')))}
const { write } = process.stdout
const pages = []
for (const words of JSON.parse(process.argv[1])) {
  let text = ''
  process.stdout.write = (piece, done) => ((text += piece), done?.(), true)
  // The help of a topic changes the state of the program, so each page gets a new one.
  await new Help(await Program.open({ root: ${JSON.stringify(root)} })).showHelp(words)
  pages.push(text)
}
write.call(process.stdout, JSON.stringify(pages))
`

/** The pages, with repeated blocks of common flags replaced by a reference to their first occurrence. */
function withoutRepeats(titles: readonly string[], pages: readonly string[]): string {
  const printedFirstBy = new Map<string, string>()
  const shorten = (title: string, page: string) =>
    page.replaceAll(/^(OUTPUT|CONNECTION) FLAGS\n(?: +.*\n)+/gm, (block: string, name: string) => {
      const first = printedFirstBy.get(block)
      if (first === undefined) printedFirstBy.set(block, title)
      return first === undefined ? block : `${name} FLAGS as in ${first}\n`
    })
  return titles.map((title, i) => `$ ${title}\n${shorten(title, pages[i]!)}\n`).join('\n')
}

describe.runIf(existsSync(binary))('the help', () => {
  it('of every command equals its golden file', async () => {
    const commands = Object.entries(manifestCommands<{ hidden?: boolean }>())
    const ids = commands.filter(([, { hidden }]) => !hidden).map(([id]) => id)
    const home = await temporaryFolder()
    const env = {
      PATH: process.env.PATH ?? '',
      HOME: home,
      XDG_CACHE_HOME: home,
      SVC_CONFIG_DIR: home,
      CI: '1',
    }
    const run = async (...args: string[]): Promise<string> => {
      const { stdout, stderr } = await promisify(execFile)(process.execPath, args, {
        env,
        maxBuffer: 1 << 26,
      })
      expect(stderr).toBe('')
      return stdout
    }
    const asked = [[], ...ids.sort().map((id) => id.split(':'))]
    const printed = await run('--input-type=module', '-e', asking, JSON.stringify(asked))
    const pages = JSON.parse(printed) as string[]
    const titles = asked.map((words) => `svc ${[...words, '--help'].join(' ')}`)
    // A release changes it, and runs this before.
    const help = withoutRepeats(titles, pages).replaceAll(`svc/${version} `, 'svc/VERSION ')
    expectGolden('help.golden.txt', help)
    for (const i of [0, 1, asked.length - 1]) {
      expect(await run(binary, ...asked[i]!, '--help')).toBe(pages[i])
    }
  })
})
