import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FakeService, page, problem, uuid } from './fake-service.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
const service = new FakeService()
const route = 'GET /devices'

const device = (n: number, status: string) => ({ id: uuid(n), hostname: `pc-${n}`, status })
const fleet = [device(1, 'online'), device(2, 'online')]
const changed = [device(1, 'online'), device(2, 'offline'), device(3, 'online')]

/** Each answer once, then a refusal, which ends the command. */
const answer = (...rows: unknown[][]) => {
  const answers = rows.map((one) => page(one))
  service.answers[route] = () => answers.shift() ?? problem(403, 'forbidden', 'No more')
}

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const watch = (...args: string[]) => home.run(['devices', 'list', '--watch', ...args])

describe('--watch of a list', () => {
  it('prints in a pipe the rows, and then those that changed, also back', async () => {
    answer(fleet, changed, fleet)
    const { code, stdout, stderr } = await watch('--columns', 'hostname,status')
    expect([code, stdout]).toEqual([
      5,
      'HOSTNAME  STATUS\npc-1      online\npc-2      online\npc-2      offline\npc-3      online\npc-2      online\n',
    ])
    expect(stderr).toContain('No more')
  })

  it('is a document per row as JSON, after a service that was away', async () => {
    const answers = [page(fleet), problem(503, 'unavailable', 'Maintenance'), page(changed)]
    service.answers[route] = () => answers.shift() ?? problem(403, 'forbidden', 'No more')
    const result = await watch('--json', '--status', 'online')
    const rows = result.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(rows).toEqual([...fleet, ...changed.slice(1)])
    expect([result.code, failureOf(result).message]).toEqual([5, 'No more'])
    expect(service.calls(route).every(({ path }) => path.includes('status=online'))).toBe(true)
  })

  it('does not read every row again and again', async () => {
    const result = await watch('--all')
    expect([result.code, service.seen]).toEqual([2, []])
  })

  it.skipIf(noTerminal)('cuts ids where its rows are all that an id could mean', async () => {
    const ids = ['0197c1c4-0000-7000-8000-000000000001', '01a7c1c4-0000-7000-8000-000000000002']
    const two = ids.map((id, n) => ({ id, hostname: `pc-${n}`, status: 'online' }))
    const shown = async (total: number) => {
      service.answers[route] = () => page(two, { total })
      const watching = ['devices', 'list', '--watch']
      return (await home.terminal(watching, { answers: [['q quits', 'q']] })).stdout
    }
    const all = await shown(2)
    expect(all).toContain('0197c1c4…')
    expect(all).not.toContain(ids[0])
    expect(await shown(3)).toContain(ids[0])
  })

  it.skipIf(noTerminal)('redraws a terminal, cut to its height, and restores it', async () => {
    const many = Array.from({ length: 50 }, (_, n) => device(n, 'online'))
    const answers = [many, many.map((one) => ({ ...one, status: 'offline' }))]
    service.answers[route] = () => page(answers.shift() ?? many, { total: 120 })
    const { code, stdout } = await home.terminal(['devices', 'list', '--watch'], {
      answers: [['offline', 'q']],
    })
    expect(code).toBe(0)
    expect(stdout).toContain('36 of 120 at ')
    expect(stdout).toContain('\u001b[32monline')
    expect(stdout).not.toContain('pc-37')
    expect(stdout.startsWith('\u001b[?1049h')).toBe(true)
    expect(stdout.endsWith('\u001b[?1049l')).toBe(true)
  })
})
