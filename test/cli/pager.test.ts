import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { helpSubjects } from '../../src/cli/manual.ts'
import { FakeService, organization, page } from './fake-service.ts'
import { Home, noTerminal } from './run.ts'

const orgs = (count: number) =>
  Array.from({ length: count }, (_, n) => organization(n + 1, `org-${n + 1}`, `Org ${n + 1}\u0007`))

const home = new Home()
const service = new FakeService()
const answer = (count: number) => {
  for (const route of ['GET /orgs/organizations', 'GET /orgs/']) service.answers[route] = page(orgs(count))
}

beforeAll(async () => {
  answer(60)
  await service.start()
  home.signIn(service.url)
  // Says that it was asked, with its settings, and what it was given.
  home.write('pager.sh', 'printf "[paged %s]" "$LESS"; cat; printf "[end]"\n')
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const pager = () => `sh ${home.path}/pager.sh`
/** At a terminal of 40 rows. */
const seen = async (args: string[], env: Record<string, string | undefined> = {}) => {
  const { code, stdout } = await home.terminal(args, { env })
  return { code, text: stdout, isPaged: stdout.includes('[paged') }
}

describe.skipIf(noTerminal)(`a pager (${noTerminal ?? 'on a pseudo terminal'})`, () => {
  it('shows a list that is longer than the terminal, with the settings of git and without control characters', async () => {
    const { code, text } = await seen(['orgs'], { PAGER: pager() })
    expect(code).toBe(0)
    expect(text).toMatch(/\[paged FRX\][\s\S]*Org 60\\u0007[\s\S]*\[end\]/)
    expect(text).not.toContain('\u0007')
  })

  it('is that of SVC_PAGER before that of PAGER, and keeps settings of its own', async () => {
    const env = { SVC_PAGER: pager(), PAGER: 'false', LESS: 'R' }
    expect((await seen(['orgs'], env)).text).toContain('[paged R]')
  })

  it('is less without a choice, which waits for q', async () => {
    const answers: [string, string][] = [['Org 30', 'q']]
    const { code, stdout } = await home.terminal(['orgs'], { env: { PAGER: undefined }, answers })
    expect(code).toBe(0)
    expect(stdout).toContain('Org 30')
    expect(stdout).not.toContain('Org 59')
  })

  it.each([
    ['cat', { PAGER: 'cat' }],
    ['nothing', { SVC_PAGER: '' }],
    ['nothing, before PAGER', { SVC_PAGER: '', PAGER: 'false' }],
    ['a program that is not there', { PAGER: '/nowhere/pager' }],
  ])('that is %s leaves the list where it is', async (_, env) => {
    const { code, text, isPaged } = await seen(['orgs'], env)
    expect([code, isPaged, text.includes('Org 60')]).toEqual([0, false, true])
  })

  it.each([
    ['a list that fits', ['orgs', '--no-header'], { short: true }],
    ['JSON', ['orgs', '--json'], {}],
    ['ids', ['orgs', '-q'], {}],
    ['a list without prompts', ['orgs', '--no-input'], {}],
    ['a list in CI', ['orgs'], { env: { CI: 'true' } }],
    ['a list on a dumb terminal', ['orgs'], { env: { TERM: 'dumb' } }],
  ] as [string, string[], { short?: boolean; env?: Record<string, string> }][])(
    'is not asked for %s',
    async (_, args, { short, env }) => {
      answer(short ? 5 : 60)
      const { code, isPaged } = await seen(args, { PAGER: pager(), ...env })
      answer(60)
      expect([code, isPaged]).toEqual([0, false])
    },
  )

  it('is never asked in a pipe', async () => {
    const { stdout } = await home.run(['orgs'], { env: { PAGER: pager(), SVC_PAGER: pager() } })
    expect([stdout.includes('[paged'), stdout.includes('Org 60')]).toEqual([false, true])
  })

  it.each([
    ['a command', ['orgs', 'list', '--help']],
    ['a subject', ['help', 'environment']],
    ['the manual', ['help', 'svc-trust']],
    ['everything', ['--help']],
  ])('shows the help of %s', async (_, args) => {
    const { code, text } = await seen(args, { PAGER: pager() })
    expect(code).toBe(0)
    expect(text).toMatch(/\[paged FRX\][\s\S]+\[end\]/)
  })
})

it.each([
  ['env', 'did you mean svc help environment?'],
  ['nonsense', 'svc help lists the commands; there are also exit-codes, environment, filters, formatting'],
])('svc help %s says which pages there are', async (name, hint) => {
  const { code, stderr } = await home.run(['help', name])
  expect([code, stderr]).toEqual([2, `Error: There is no help about "${name}"\nHint: ${hint}\n`])
})

it('svc help help names every subject and every page of the manual', async () => {
  const { stdout } = await home.run(['help', 'help'])
  const text = stdout.replaceAll(/\s+/g, ' ')
  for (const name of helpSubjects()) expect(text).toMatch(new RegExp(`\\b${name}\\b`))
})
