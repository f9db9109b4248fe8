import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { redactData, redactDataInTurns, redactText, redactTextInTurns } from '../../src/logs/redaction.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { buildWorld } from '../world.ts'

const hex = 'a1b2c3d4'.repeat(8)
const pem = '-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----'

describe('redaction', () => {
  it.each([
    ['GET /x Authorization: Bearer abc.def-123456 done', 'GET /x Authorization: [redacted] done'],
    ['authorization: Basic dXNlcjpwYXNz', 'authorization: [redacted]'],
    ['sent bearer 0123456789abcdef to it', 'sent bearer [redacted] to it'],
    [`key svc_${hex} is used`, 'key [redacted] is used'],
    [`enrollment key ${hex} refused`, 'enrollment key [redacted] refused'],
    [`{"enrollmentKey":"${hex}"}`, '{"enrollmentKey":"[redacted]"}'],
    ['postgres://svc:hunter2@db:5432/x', 'postgres://svc:[redacted]@db:5432/x'],
    ['https://u:p@ss@host/', 'https://u:[redacted]@host/'],
    ['https://ghtoken0123456789abcdef@github.com/a', 'https://[redacted]@github.com/a'],
    ['password=hunter2 user=bob', 'password=[redacted] user=bob'],
    ['DB_PASSWORD: hunter2, next', 'DB_PASSWORD: [redacted], next'],
    ['client_secret="two words" x', 'client_secret=[redacted] x'],
    ["token = 'it is this' x", 'token = [redacted] x'],
    ['{"password":"a\\"b","user":"c"}', '{"password":[redacted],"user":"c"}'],
    ['body {\\"password\\":\\"hunter2\\"}', 'body {\\"password\\":[redacted]\\"}'],
    ['<password>hunter2</password>', '<password>[redacted]</password>'],
    ['run --api-key abc123 now', 'run --api-key [redacted] now'],
    ['x-api-key: abc123', 'x-api-key: [redacted]'],
    ['Set-Cookie: sid=abc; Path=/', 'Set-Cookie: [redacted]'],
    [`before ${pem} after`, 'before [redacted] after'],
    ['cut -----BEGIN PRIVATE KEY-----\nMIIEow', 'cut [redacted]'],
    ['id AKIAIOSFODNN7EXAMPLE used', 'id [redacted] used'],
    ['aws_secret_access_key = wJalr/K7MDENG+x', 'aws_secret_access_key = [redacted]'],
    ['jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln end', 'jwt [redacted] end'],
    ['pushed with ghp_0123456789abcdefABCDEF0123', 'pushed with [redacted]'],
  ])('redacts %s', (message, left) => {
    expect(redactText(message)).toBe(left)
  })

  it.each([
    'The service did not answer',
    `sha256 ${hex} verified`,
    'bearer authentication failed',
    'Basic networking restored',
    'the password of bob was changed',
    'key HKLM\\Software\\Example was read',
    'listening on http://localhost:3000/health and https://example.com:8443/a@b',
    'tokenizer loaded, 3 passes, bypass: off',
    'monkey business at C:\\Users\\keyboard',
    '',
  ])('leaves %s', (message) => {
    expect(redactText(message)).toBe(message)
  })

  it('redacts data under the name of a secret, at any depth', () => {
    const data = {
      user: 'bob',
      password: 'hunter2',
      nested: { apiKey: 12345, list: [{ accessToken: 'x' }, 'token=abc'], secrets: { a: 'b', on: true } },
      tokenCount: 3,
      code: 5,
      key: 'HKLM',
      passwordExpired: true,
      secret: null,
      'password=abc': 1,
    }
    expect(redactData(data)).toEqual({
      user: 'bob',
      password: '[redacted]',
      nested: {
        apiKey: '[redacted]',
        list: [{ accessToken: '[redacted]' }, 'token=[redacted]'],
        secrets: { a: '[redacted]', on: true },
      },
      tokenCount: 3,
      code: 5,
      key: 'HKLM',
      passwordExpired: true,
      secret: null,
      'password=[redacted]': 1,
    })
    expect(redactData(null)).toBeNull()
  })

  const pieces = [
    '-----BEGIN ',
    'PRIVATE KEY-----',
    '-----END ',
    'svc_',
    'eyJ',
    '://',
    ':',
    '@',
    '.',
    ' ',
    '"',
    "'",
    '\\',
    '=',
    '>',
    'password',
    'token',
    'key',
    'authorization',
    'cookie',
    'bearer ',
    'a',
    'A',
    '0',
    '--',
    'passwordpassword',
    '\\"',
    '\n',
    '<',
    'AKIA',
    'ghp_',
    '-',
  ]

  it('has the same result for megabytes of text and data, without blocking the event loop', async () => {
    const line = 'user=jane token=abc123 path=/srv said "password": "a b\nc", eyJhbGciOiJI.eyJzdWIi.x\n'
    const text = line.repeat(20_000)
    let turns = 0
    let isOver = false
    const count = (): void => {
      turns += 1
      if (!isOver) setImmediate(count)
    }
    setImmediate(count)
    expect(await redactTextInTurns(text)).toBe(redactText(text))
    expect(turns).toBeGreaterThan(5)
    isOver = true
    const data = {
      text,
      list: [text, { apiKey: [text], 'password=abc': 1 }],
      secrets: { a: text, on: true },
      empty: null,
    }
    expect(await redactDataInTurns(data)).toEqual(redactData(data))
  })

  it('takes time linear in the text, whatever its content', () => {
    const cpuTimeOf = (text: string) => {
      const begin = process.cpuUsage()
      redactText(text)
      return process.cpuUsage(begin).user / 1000
    }
    for (const first of pieces) {
      for (const second of pieces) {
        const text = `token ${(first + second).repeat(40_000 / (first.length + second.length))}`
        // Some milliseconds; quadratic time would take seconds.
        expect(cpuTimeOf(text) < 400 || cpuTimeOf(text) < 400, JSON.stringify(first + second)).toBe(true)
      }
    }
  })

  it('finds a secret in any context', () => {
    const around = fc.array(fc.constantFrom(...pieces, 'word ', '\n', ', '), { maxLength: 12 })
    fc.assert(
      fc.property(around, around, (before, after) => {
        const secret = `svc_${'0'.repeat(64)}`
        const text = `${before.join('')} ${secret} ${after.join('')}`
        expect(redactText(text)).not.toContain('0'.repeat(32))
      }),
      { numRuns: 500 },
    )
  })

  it('happens before anything is stored', async () => {
    const service = await startService(() => openMigrated('sqlite'))
    const { orgs } = await buildWorld(service)
    const { agentId: id, agentToken } = orgs.bakery
    const agent = service.client(agentToken)
    const timestamp = '2026-03-01T11:00:00.000Z'
    const message = 'login with password=hunter2'
    const data = { header: { authorization: 'Bearer hunter2-hunter2' } }
    await agent.call(api.diagnosticLogs.submit, {
      params: { id },
      body: { logs: [{ timestamp, level: 'warn', component: 'ws', message, fields: data }] },
    })
    await agent.call(api.eventLogs.submit, {
      params: { id },
      body: {
        events: [{ timestamp, level: 'info', category: 'system', source: 'sshd', message, details: data }],
      },
    })
    const { read } = service.storage
    const stored = [
      await read.selectFrom('agent_logs').selectAll().execute(),
      await read.selectFrom('device_event_logs').selectAll().execute(),
    ]
    for (const [row] of stored) expect(row).toMatchObject({ message: 'login with password=[redacted]' })
    expect(JSON.stringify(stored)).not.toContain('hunter2')
  })
})
