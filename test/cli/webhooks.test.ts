import { createServer } from 'node:http'
import { request as requestTls } from 'node:https'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { RecentIds } from '../../src/cli/webhooks/delivery.ts'
import { until } from '../daemon/process.ts'
import { eventId, eventOf, orgId, secret, signedHeaders, without } from '../webhooks/signed.ts'
import { hasOpenssl, listening, testCertificate } from './network.ts'
import { failureOf, Home, noTerminal } from './run.ts'
import { listen, target } from './webhook-listener.ts'

const home = new Home()
afterAll(() => home.remove())

const errorIn = async (reply: Response) => ((await reply.json()) as { error: string }).error

const event = eventOf('alert.triggered', { alertId: 'a', title: 'Küche' })

describe('svc webhooks listen', () => {
  it('prints each delivery as a line of JSON, and marks repeated events', async () => {
    const { deliver, rows, has, said, end } = await listen(home)
    const reply = await deliver(event)
    expect([reply.status, await reply.json()]).toEqual([200, { received: true }])
    await deliver(event)
    await has(2)
    const [first, second] = rows()
    expect(first).toEqual({
      receivedAt: expect.stringMatching(/^\d{4}-.*Z$/),
      eventId,
      deliveryId: '0197c1c8-0000-7000-8000-000000000001',
      sequence: 7,
      type: 'alert.triggered',
      orgId,
      signature: 'valid',
      reason: null,
      again: false,
      forwarded: null,
      event,
    })
    expect(second).toMatchObject({ again: true, signature: 'valid' })
    expect(said.stderr).toContain('over HTTPS alone: give --cert and --key')
    expect(said.stderr).not.toContain('Warning')
    const asked = performance.now()
    expect(await end()).toBe(130)
    expect(performance.now() - asked).toBeLessThan(2000)
  })

  it('refuses deliveries without a current signature by the secret', async () => {
    const { url, deliver, rows, has } = await listen(home)
    const body = JSON.stringify(event)
    const good = signedHeaders(body)
    const wrong: [reason: RegExp, headers: Record<string, string>][] = [
      [/native and Standard Webhooks: not these bytes/, signedHeaders(body, { by: 'another' })],
      [/native: not these/, { ...good, 'x-service-signature': signedHeaders('{}')['x-service-signature']! }],
      [/Standard Webhooks: not these/, { ...good, 'webhook-id': 'another' }],
      [/there is no signature/, without(good, /signature$/)],
      [/missing: X-Service-Signature-Timestamp/, without(good, /^webhook|signature-timestamp/)],
      [/signed 40\d s ago, more than the 300 s/, signedHeaders(body, { at: Date.now() - 400_000 })],
      [/signed (39\d|400) s from now/, signedHeaders(body, { at: Date.now() + 400_000 })],
      [
        /signed 40\d s ago/,
        {
          ...without(signedHeaders(body, { at: Date.now() - 400_000 }), /^x-service/),
          'x-service-signature-timestamp': String(Date.now()),
        },
      ],
    ]
    for (const [reason, headers] of wrong) {
      const reply = await deliver(event, headers)
      expect(reply.status).toBe(401)
      expect(await errorIn(reply)).toMatch(reason)
    }
    await has(wrong.length)
    expect(rows().map(({ signature }) => signature)).toEqual([
      'invalid',
      'invalid',
      'invalid',
      'unsigned',
      'unsigned',
      'invalid',
      'invalid',
      'invalid',
    ])
    expect(rows().every(({ forwarded, again }) => forwarded === null && again === false)).toBe(true)
    expect((await fetch(url)).status).toBe(405)
    const large = await fetch(url, { method: 'POST', body: Buffer.alloc((1 << 20) + 1) })
    expect([large.status, await errorIn(large)]).toEqual([413, expect.stringContaining('1 MiB')])
    expect((await deliver(event)).status).toBe(200)
  })

  it('accepts either of the two signatures, and one by the previous secret', async () => {
    const { deliver } = await listen(home, { args: ['--json', '--tolerance', '600'] })
    const body = JSON.stringify(event)
    const good = signedHeaders(body, { at: Date.now() - 400_000 })
    expect((await deliver(event, without(good, /^webhook/))).status).toBe(200)
    expect((await deliver(event, without(good, /^x-service/))).status).toBe(200)
    const overlap = {
      ...without(good, /^webhook/),
      'x-service-signature': 'sha256=00',
      'x-service-previous-signature': good['x-service-signature']!,
    }
    expect((await deliver(event, overlap)).status).toBe(200)
  })

  it('prints and forwards only the named event types', async () => {
    const { taken, url } = await target(() => [204])
    const args = ['--json', '--event', 'user.login, user.logout', '--forward-to', url]
    const { deliver, rows, has } = await listen(home, { args })
    expect((await deliver(event)).status).toBe(200)
    expect((await deliver(eventOf('user.logout'))).status).toBe(204)
    await has(1)
    expect(rows().map(({ type }) => type)).toEqual(['user.logout'])
    expect(taken.length).toBe(1)
  })

  it('warns once that without a secret nothing is checked', async () => {
    const { url, deliver, rows, has, said } = await listen(home, { known: [] })
    await deliver(event, { 'x-service-event-id': 'other' })
    await fetch(url, { method: 'POST', body: 'no JSON', headers: { 'webhook-id': 'w' } })
    await has(2)
    expect(rows().map(({ signature, eventId: id, event: body }) => [signature, id, body])).toEqual([
      ['unchecked', eventId, event],
      ['unchecked', 'w', null],
    ])
    expect(said.stderr.match(/Warning: without --secret/g)).toHaveLength(1)
  })

  it('prints an aligned line in text output, without control characters of the sender', async () => {
    const { url } = await target(() => [201])
    const { deliver, said, end } = await listen(home, {
      args: ['--forward-to', url],
      known: ['--secret', '-'],
      input: secret,
    })
    await deliver(event)
    await deliver(eventOf('user.login\u001b[2J', {}, 'b'))
    await deliver(event, {})
    await until(() => said.stdout.split('\n').length > 3)
    const lines = said.stdout.trimEnd().split('\n')
    const at = lines.map((line) => line.indexOf('valid') + line.indexOf('unsigned') + 1)
    expect(new Set(at).size).toBe(1)
    expect(lines[0]).toMatch(
      new RegExp(`^\\S+Z  alert\\.triggered {10}${eventId}  valid      201 in \\d+ ms$`),
    )
    expect(lines[1]).toContain('user.login\\u001b[2J')
    expect(lines[2]).toMatch(/unsigned {3}there is no signature {2}again$/)
    expect(await end()).toBe(130)
  })

  it('prints IDs, CSV and the output of jq', async () => {
    for (const [args, expected] of [
      [['-q'], `${eventId}\n`],
      [['--columns', 'type,event.data.title', '--csv'], 'type,event.data.title\nalert.triggered,Küche\n'],
      [['--jq', '.event.data.title'], 'Küche\n'],
    ] as const) {
      const { deliver, said } = await listen(home, { args: [...args] })
      await deliver(event)
      await until(() => said.stdout === expected)
      expect(said.stdout).toBe(expected)
    }
  })

  it('colors valid and invalid deliveries when colors are enabled', async () => {
    const { deliver, said } = await listen(home, { args: [], env: { FORCE_COLOR: '1' } })
    await deliver(event)
    await deliver(event, {})
    await until(() => said.stdout.split('\n').length > 2)
    expect(said.stdout).toContain('\u001b[32mvalid    \u001b[39m')
    expect(said.stdout).toContain('\u001b[31munsigned \u001b[39m')
  })

  it.skipIf(noTerminal)('ends with Ctrl-C at a terminal', async () => {
    const { stdout, code } = await home.terminal(['webhooks', 'listen', '--port', '0'], {
      answers: [['tunnel in front', '\u0003']],
    })
    expect(code).toBe(130)
    expect(stdout).toContain('Listening at http://127.0.0.1:')
  })
})

describe.runIf(hasOpenssl)('svc webhooks listen --cert --key', () => {
  const { file, missing, pair } = testCertificate()
  const key = file.replace('cert.pem', 'key.pem')

  it('serves HTTPS', async () => {
    const { url, has, rows, said } = await listen(home, { args: ['--json', '--cert', file, '--key', key] })
    expect(url).toMatch(/^https:/)
    await until(() => said.stderr.includes('OUTBOUND_CA_FILE'))
    const body = JSON.stringify(event)
    const deliver = (ca?: Buffer) =>
      new Promise<number | undefined>((resolve, reject) => {
        const options = { method: 'POST', headers: signedHeaders(body), ca, agent: false as const }
        requestTls(url, options, (reply) => resolve(reply.resume().statusCode))
          .on('error', reject)
          .end(body)
      })
    expect(await deliver(pair().cert)).toBe(200)
    await has(1)
    expect(rows()[0]).toMatchObject({ signature: 'valid', event })
    await expect(deliver()).rejects.toThrow(/self-signed/)
    await until(() => said.stderr.includes('A connection ended before a delivery'))
  })

  it('reports what is wrong with the files', async () => {
    const run = (...args: string[]) => home.run(['webhooks', 'listen', '--json', ...args])
    expect(failureOf(await run('--cert', file)).message).toBe('--cert and --key go together')
    expect(failureOf(await run('--cert', file, '--key', missing)).message).toContain('ENOENT')
    const swapped = await run('--cert', key, '--key', file)
    expect([swapped.code, failureOf(swapped).hint]).toEqual([2, expect.stringContaining('both are PEM')])
  })
})

it('svc webhooks listen gives a hint for wrong flags', async () => {
  const server = createServer()
  onTestFinished(() => void server.close())
  const taken = String(await listening(server))
  const wrong: [code: number, message: RegExp, hint: RegExp, args: string[]][] = [
    [1, /127\.0\.0\.1:\d+ is in use/, /--port 0/, ['--port', taken]],
    [2, /Cannot listen at 192\.0\.2\.1/, /address of this machine/, ['--host', '192.0.2.1', '--port', '0']],
    [2, /--secret takes no value/, /@file/, ['--secret', 'geheim']],
    [2, /no base64/, /complete/, ['--secret', `@${home.write('bad', 'whsec_!')}`]],
    [2, /empty/, /complete/, ['--secret', `@${home.write('empty', '\n')}`]],
    [2, /no event type "alert.trigered"/, /alert\.triggered/, ['--event', 'alert.trigered']],
    [2, /names no event type/, /device\.online/, ['--event', ',']],
    [2, /not a URL/, /http:/, ['--forward-to', 'localhost:1']],
    [2, /password/, /without/, ['--forward-to', 'http://a:b@127.0.0.1/']],
    [2, /points to this command/, /--port/, ['--forward-to', 'http://localhost:4400/x']],
    [2, /rows as they arrive/, /ndjson/, ['-o', 'yaml']],
    [2, /greater than or equal to 1/, /--help/, ['--tolerance', '0']],
  ]
  for (const [code, message, hint, args] of wrong) {
    const result = await home.run(['webhooks', 'listen', ...args])
    expect([result.code, result.stdout]).toEqual([code, ''])
    expect(result.stderr).toMatch(message)
    expect(result.stderr).toMatch(hint)
  }
})

it('the memory of svc webhooks listen is bounded', () => {
  const recent = new RecentIds(2)
  for (const id of ['a', 'b', 'a', 'c', 'x'.repeat(101)]) recent.add(id)
  expect(['a', 'b', 'c', 'x'.repeat(101)].filter((id) => recent.has(id))).toEqual(['a', 'c'])
})
