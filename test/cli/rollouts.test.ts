import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { formatRollout, formatWaves } from '../../src/cli/rollouts/format.ts'
import { wrappedLines } from '../../src/cli/rollouts/status.ts'
import { plainStyle } from '../../src/cli/style.ts'
import { allowSequence } from '../../src/core/terminal.ts'
import { FakeService, page, problem, uuid } from './fake-service.ts'
import { progress, rollout } from './rollout-record.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
const service = new FakeService()
const id = uuid(90)
const at = `/agent-rollouts/${id}`

const halted = {
  ...progress,
  status: 'halted',
  haltReason: '46 failed in wave 2 of 900, where 5 % (45) may',
  next: { step: 'decide', wave: null, at: null, because: 'it was halted: resume, abort or roll back' },
}

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /agent-rollouts'] = page([rollout, { ...rollout, id: uuid(91), version: '1.1.0' }])
  service.answers['POST /agent-rollouts'] = { status: 201, body: rollout }
  service.answers[`GET ${at}`] = { body: progress }
  service.answers[`GET ${at}/devices`] = page([])
  for (const verb of ['halt', 'resume', 'abort', 'roll-back']) {
    service.answers[`POST ${at}/${verb}`] = { body: rollout }
  }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(['agent', 'rollout', ...args])

describe('svc agent rollout start', () => {
  it('takes waves and limits in human-readable units', async () => {
    service.answers['GET /filters'] = { body: { data: [{ id: uuid(5), name: 'Pilot devices' }], total: 1 } }
    const waves = ['--wave', 'filter:Pilot devices', '--wave', '1%', '--wave', '0.5%', '--wave', '100%']
    const bounds = ['--gate', '30m', '--soak', '2h', '--max-failures', '3%']
    const { code, stdout } = await svc('start', '1.2.0', ...waves, ...bounds, '-q')
    expect([code, stdout]).toEqual([0, `${id}\n`])
    expect(service.calls('POST /agent-rollouts')[0]?.body).toEqual({
      version: '1.2.0',
      waves: [{ filterId: uuid(5) }, { percent: 1 }, { percent: 0.5 }, { percent: 100 }],
      gateMinutes: 30,
      soakMinutes: 120,
      maxFailurePercent: 3,
    })
  })

  it('omits what is not given', async () => {
    const { stdout } = await svc('start', '1.2.0', '--wave', '100%')
    expect(stdout).toBe(
      'The devices for 1.2.0 are being drawn; svc agent rollout status --watch shows the progress\n',
    )
    expect(service.calls('POST /agent-rollouts')[0]?.body).toEqual({
      version: '1.2.0',
      waves: [{ percent: 100 }],
    })
  })

  it.each([
    [[], 'Missing --wave'],
    [['--wave', '10'], '--wave takes a percentage such as 10% or a filter such as filter:Pilots, not "10"'],
    [
      ['--wave', '1%', '--gate', '90s'],
      '--gate takes a duration in minutes or hours such as 15m or 2h, not "90s"',
    ],
    [
      ['--wave', '1%', '--soak', 'long'],
      '--soak takes a duration in minutes or hours such as 15m or 2h, not "long"',
    ],
    [['--wave', '1%', '--max-failures', '5'], '--max-failures takes a percentage such as 10%, not "5"'],
  ])('refuses %j', async (flags, message) => {
    const result = await svc('start', '1.2.0', ...flags, '--json')
    expect([result.code, failureOf(result).message, service.seen]).toEqual([2, message, []])
  })

  it('names the flag that was wrong', async () => {
    const details = [
      { path: 'body.waves.1.percent', message: 'wave 2 must be more than 10 %' },
      { path: 'body.gateMinutes', message: 'must be at least 1' },
    ]
    service.answers['POST /agent-rollouts'] = problem(400, 'invalid_request', 'wrong', { details })
    const { code, stderr } = await svc('start', '1.2.0', '--wave', '10%', '--wave', '5%')
    expect(code).toBe(2)
    expect(stderr).toContain('--wave: wave 2 must be more than 10 %')
    expect(stderr).toContain('--gate: must be at least 1')
  })

  it('supports --dry-run', async () => {
    const { code, stdout } = await svc('start', '1.2.0', '--wave', '100%', '--dry-run', '--json')
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      request: { method: 'POST', body: { version: '1.2.0', waves: [{ percent: 100 }] } },
    })
    expect(service.seen).toEqual([])
  })
})

const shown = `Rollout of 1.2.0: running, wave 2 of 3 since 2026-01-31T12:31:04.000Z

  WAVE          DEVICES                          UPDATED  SOAKING  OFFERED  WAITING  FAILED
  1     1 %         100  [####################]      100        0        0        0       0
> 2     Pilots      900  [########------------]      161      200      120      417       2
  3     100 %     9 000  [--------------------]        0        0        0    9 000       0

Failed: 2 not accepted, 45 of this wave may
  2  Rolled back: exit 1

Next: wave 3 opens: waits for 120 devices that were offered it
`

describe('svc agent rollout status', () => {
  it('shows waves, failures and the next step of the last rollout, aligned and without color', async () => {
    const { code, stdout } = await svc('status')
    expect([code, stdout]).toEqual([0, shown])
  })

  it('shows when the next wave opens, if that is in the future', () => {
    const now = Date.parse('2026-01-31T12:40:00.000Z')
    expect(formatRollout(progress, plainStyle, now)).toContain(
      'Next: wave 3 opens, not before 2026-01-31T12:46:04.000Z (in 7 min): waits for',
    )
  })

  it('shows how many devices wait for their maintenance windows, and when the next opens', () => {
    const at = (devices: number, nextOpensAt: string | null) =>
      formatRollout({ ...progress, awaitingWindow: { devices, nextOpensAt } }, plainStyle, 0)
    expect(at(3, '2026-02-01T01:00:00.000Z')).toContain(
      '\n\nWaiting: 3 devices wait for their maintenance windows, next opens 2026-02-01T01:00:00.000Z\nNext: ',
    )
    expect(at(1, null)).toContain('Waiting: 1 device waits for its maintenance window, none opens\n')
    expect(at(0, null)).not.toContain('Waiting')
  })

  it('leaves room for the numbers in 80 columns, and shows some waves around the open one', () => {
    const lines = formatRollout(progress, plainStyle, 0, 80).split('\n').slice(0, 6)
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80)
    expect(lines[4]).toBe('> 2     Pilots      900  [##-----]      161      200      120      417       2')
    expect(formatWaves(progress, plainStyle, 80, 2).map((line) => line.slice(0, 3))).toEqual([
      '  W',
      '  1',
      '> 2',
    ])
  })

  it('shows no control sequences', () => {
    const reasons = [{ reason: 'a\u001b[2Jb', devices: 1 }]
    const text = formatRollout({ ...progress, failures: { ...progress.failures, reasons } }, plainStyle, 0)
    expect(text).toContain('a\\u001b[2Jb')
  })

  it('is the response of the API as JSON, for a rollout by version', async () => {
    service.answers[`GET /agent-rollouts/${uuid(91)}`] = { body: { ...progress, version: '1.1.0' } }
    const { stdout } = await svc('status', '1.1.0', '--json')
    expect(JSON.parse(stdout)).toEqual({ ...progress, version: '1.1.0' })
  })

  it('exits with 1 for a halted rollout with --exit-code', async () => {
    service.answers[`GET ${at}`] = { body: halted }
    const plainly = await svc('status')
    expect([plainly.code, plainly.stdout]).toEqual([0, expect.stringContaining(halted.haltReason)])
    expect((await svc('status', '--exit-code')).code).toBe(1)
    service.answers[`GET ${at}`] = { body: { ...halted, status: 'completed', next: null } }
    expect((await svc('status', '--exit-code')).code).toBe(0)
  })

  it('watches until nothing changes by itself, with one line per change in a pipe', async () => {
    const answers = [progress, progress, halted]
    service.answers[`GET ${at}`] = () => ({ body: answers.shift() ?? halted })
    const { code, stdout } = await svc('status', '--watch', '--exit-code')
    expect([code, stdout.split('\n')]).toEqual([
      1,
      [
        '1.2.0 running, wave 2 of 3: 261 updated, 200 soaking, 120 offered, 9 417 waiting, 2 failed',
        '1.2.0 halted, wave 2 of 3: 261 updated, 200 soaking, 120 offered, 9 417 waiting, 2 failed',
        '',
      ],
    ])
  })

  it('watches with one document per change as JSON', async () => {
    service.answers[`GET ${at}`] = { body: halted }
    const { stdout } = await svc('status', '--watch', '--json')
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line).status),
    ).toEqual(['halted'])
    const refused = await svc('status', '--watch', '--csv')
    expect([refused.code, refused.stdout]).toEqual([2, ''])
  })

  it.skipIf(noTerminal)('is redrawn in place at a terminal, with colors', async () => {
    const answers = [progress, halted]
    service.answers[`GET ${at}`] = () => ({ body: answers.shift() ?? halted })
    const { stdout } = await home.terminal(['agent', 'rollout', 'status', '--watch'], { columns: 120 })
    const esc = '\u001b'
    expect(stdout).toContain(`${esc}[32mrunning`)
    expect(stdout).toContain(`${esc}[11A${esc}[0J`)
    expect(stdout).toContain(`${esc}[31mhalted`)
  })

  it('clears as many lines as wrapping produced', () => {
    expect(wrappedLines('12345\n123456\n\n', 5)).toBe(4)
    expect(wrappedLines(`${allowSequence('\u001b[31m')}12345${allowSequence('\u001b[39m')}\n`, 5)).toBe(1)
  })

  it('reports that there has been no rollout', async () => {
    service.answers['GET /agent-rollouts'] = page([])
    const result = await svc('status', '--json')
    expect([result.code, failureOf(result).message]).toEqual([3, 'There has been no rollout yet'])
  })
})

describe('an action on a rollout', () => {
  it('applies to the last one unless another is named', async () => {
    expect((await svc('halt')).stdout).toBe('1.2.0 is offered to no further device\n')
    expect((await svc('resume', id)).stdout).toBe('The rollout of 1.2.0 continues with wave 2\n')
    expect((await svc('devices', '--state', 'failed', '--wave', '2')).code).toBe(0)
    expect(service.calls(`GET ${at}/devices`)[0]?.path).toContain('state=failed&wave=2')
    expect(service.calls(`POST ${at}/halt`)).toHaveLength(1)
  })

  it.each([['abort'], ['roll-back']])('%s must be confirmed', async (verb) => {
    const refused = await svc(verb, '--json')
    expect([refused.code, failureOf(refused).message]).toEqual([2, 'Missing --yes'])
    expect(service.calls(`POST ${at}/${verb}`)).toEqual([])
    expect((await svc(verb, '--dry-run')).stdout).toBe(`POST ${service.url}/api/v1${at}/${verb}\n`)
    expect(service.calls(`POST ${at}/${verb}`)).toEqual([])
    expect((await svc(verb, '--yes')).code).toBe(0)
    expect(service.calls(`POST ${at}/${verb}`)).toHaveLength(1)
  })

  it.skipIf(noTerminal)('is confirmed interactively at a terminal', async () => {
    const args = ['agent', 'rollout', 'abort']
    const no = await home.terminal(args, { answers: [['permanently?', 'n\r']] })
    expect([no.code, service.calls(`POST ${at}/abort`)]).toEqual([1, []])
    const yes = await home.terminal(args, { answers: [['permanently?', 'y\r']] })
    expect([yes.code, service.calls(`POST ${at}/abort`).length]).toEqual([0, 1])
  })
})
