import { spawn } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, inject, it } from 'vitest'
import { hasOpenssl } from '../cli/network.ts'
import { onEveryEmptyDatabase } from '../databases.ts'
import { isSoak, takesTurn } from '../depth.ts'

/*
 * A trip is a script of commands as a user types them, with their output and exit codes:
 *   $ command          run by bash, all in one shell
 *   expected output    stdout and stderr; `…` stands for anything, <id> and the like for their kind
 *   ! 5                the exit code, when it is not 0
 */

const root = fileURLToPath(new URL('../..', import.meta.url))
const here = new URL('.', import.meta.url)
const prelude = readFileSync(new URL('prelude.sh', here), 'utf8')
const trips = readdirSync(here)
  .filter((name) => name.endsWith('.trip'))
  .filter((name) => hasOpenssl || !readFileSync(new URL(name, here), 'utf8').includes('$ openssl '))

/** The soak walks every trip on both databases, `npm test` these on one of them. */
const short = ['account.trip', 'keys.trip', 'upgrade.trip', 'walk.trip']
const tried = trips.filter((name) => isSoak || short.includes(name))

type Step = { command: string; output: string; exit: number }

function stepsOf(text: string): Step[] {
  const steps: Step[] = []
  for (const line of text.split('\n')) {
    const step = steps.at(-1)
    if (line.startsWith('#')) continue
    if (line.startsWith('$ ')) steps.push({ command: line.slice(2), output: '', exit: 0 })
    else if (line.startsWith('! ') && step) step.exit = Number(line.slice(2))
    else if (line !== '' && step) step.output += `${line}\n`
  }
  return steps
}

const kinds: Record<string, string> = {
  '<id>': '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}',
  '<hex>': '[0-9a-f]+',
  '<word>': '\\w+',
  '<hostname>': hostname(),
  '…': '[\\s\\S]*?',
}

function patternOf(output: string): RegExp {
  const quoted = output.replaceAll(/<\w+>|…|[.*+?^${}()|[\]\\]/g, (part) => kinds[part] ?? `\\${part}`)
  return new RegExp(`^${quoted.replace(/\n$/, '\\n?')}$`)
}

/** The output and exit code of each step. */
async function walk(steps: Step[], env: Record<string, string>): Promise<{ output: string; exit: number }[]> {
  const script = steps.map(({ command }, index) => `{ ${command}\n} 2>&1\necho "@@${index} $?"`)
  const all = [prelude, ...script, 'stop 2>/dev/null; kill $(jobs -p) 2>/dev/null'].join('\n')
  const shell = spawn('bash', ['-c', all], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let text = ''
  for await (const chunk of shell.stdout) text += chunk
  let rest = text
  return steps.map((_, index) => {
    const [whole, output = '', exit] = new RegExp(`^([\\s\\S]*?)@@${index} (\\d+)\\n`).exec(rest) ?? []
    rest = rest.slice(whole?.length ?? rest.length)
    return { output, exit: exit === undefined ? -1 : Number(exit) }
  })
}

onEveryEmptyDatabase((kind, open) => {
  describe('a trip with the real binary', () => {
    it.each(tried.filter((_, index) => takesTurn(kind, index)))('%s', { timeout: 240_000 }, async (name) => {
      const { databaseUrl, dataDir, storage } = await open()
      await storage.close()
      const steps = stepsOf(readFileSync(new URL(name, here), 'utf8'))
      const env = {
        ROOT: root,
        TRIP: dataDir,
        NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
        ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
      }
      const results = await walk(steps, env)
      for (const [index, { command, output, exit }] of steps.entries()) {
        expect(results[index]!.output, `$ ${command}`).toMatch(patternOf(output))
        expect(results[index]!.exit, `$ ${command}\n${results[index]!.output}`).toBe(exit)
      }
    })
  })
})
