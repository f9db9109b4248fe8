import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { until } from '../daemon/process.ts'
import { openMigrated } from '../databases.ts'
import { serviceOn } from '../harness.ts'
import { eventId, eventOf, secret, signedHeaders } from '../webhooks/signed.ts'
import { handOn } from '../webhooks/webhook-fixture.ts'
import { buildWorld } from '../world.ts'
import { FakeService, page, problem, type RecordedRequest, uuid } from './fake-service.ts'
import { follow } from './follow-process.ts'
import { Home } from './run.ts'
import { target } from './webhook-listener.ts'

const home = new Home()
afterAll(() => home.remove())

const id = uuid(7)
const event = eventOf('alert.triggered', { title: 'Küche' })
const body = JSON.stringify(event)
const copy = (sequence: number) => ({ sequence, headers: signedHeaders(body), body })

/** A service that answers the relay from a list; afterwards there is nothing new. */
async function serviceWith(...answers: ((after: string | null) => object)[]) {
  const left = [...answers]
  const relay = ({ path }: RecordedRequest) => {
    const after = new URLSearchParams(path.split('?')[1]).get('after')
    return (left.shift() ?? (() => ({ body: { data: [], nextAfter: Number(after) } })))(after)
  }
  const service = new FakeService({
    'GET /webhooks': page([{ id, name: 'Tickets' }]),
    [`GET /webhooks/${id}/relay`]: relay,
  })
  await service.start()
  onTestFinished(() => service.stop())
  return service
}

const begin = (nextAfter: number) => () => ({ body: { data: [], nextAfter } })
const listen = (service: FakeService, ...args: string[]) =>
  follow(home, ['webhooks', 'listen', '--webhook', 'Tickets', ...args], {
    SVC_URL: service.url,
    SVC_TOKEN: 'token',
  })

describe('svc webhooks listen --webhook', () => {
  it('forwards what the service relays to a local address, and goes on after it', async () => {
    const { taken, url } = await target(() => [201])
    const service = await serviceWith(
      begin(7),
      () => ({ body: { data: [copy(8), copy(9)], nextAfter: 9 } }),
      () => ({ body: { data: [copy(10)], nextAfter: 10 } }),
    )
    const own = ['--header', 'X-Own: ü', '--header', `Authorization: @${home.write('auth', 'Bearer 1\n')}`]
    const known = ['--secret', `@${home.write('secret', secret)}`]
    const { rows, has, said, end } = listen(service, '--json', '--forward-to', url, ...known, ...own)
    await has(3)
    const valid = { eventId, type: 'alert.triggered', signature: 'valid', event }
    expect(rows()).toMatchObject([
      { ...valid, again: false, forwarded: { status: 201 } },
      { ...valid, again: true },
      { ...valid, again: true },
    ])
    expect(taken.map((one) => one.body)).toEqual([body, body, body])
    expect(taken[0]!.headers).toMatchObject({
      ...signedHeadersIn(taken[0]!.headers),
      'x-own': 'ü',
      authorization: 'Bearer 1',
      'content-type': 'application/json',
    })
    expect(said.stderr).toContain(
      `Relaying copies of the deliveries of Tickets to ${url.split('?')[0]}, from ${service.url}; Ctrl-C ends`,
    )
    await until(() => service.calls(`GET /webhooks/${id}/relay`).length > 3)
    const asked = service.calls(`GET /webhooks/${id}/relay`).map(({ path }) => path.split('?')[1])
    expect(asked.slice(0, 4)).toEqual([undefined, 'after=7', 'after=9', 'after=10'])
    expect(await end()).toBe(130)
  })

  it('sees that a real service signs with the secret of the webhook, and with no other', async () => {
    const service = await serviceOn(await openMigrated('sqlite'))
    onTestFinished(() => service.close())
    const { orgs, tokens } = await buildWorld(service)
    const hand = handOn(service.client(tokens.system), orgs.bakery.id)
    // Paused: nothing is sent to the address.
    const hook = await hand.hook('https://hooks.example.com/in', { secret, events: ['alert.triggered'] })
    await hand.client.call(api.webhooks.update, { params: { id: hook }, body: { status: 'paused' } })
    const listening = ['right', 'wrong'].map((name) => {
      const file = home.write(name, name === 'right' ? secret : `whsec_${'b'.repeat(44)}`)
      const args = ['webhooks', 'listen', '--webhook', hook, '--json', '--secret', `@${file}`]
      return follow(home, args, { SVC_URL: service.url, SVC_TOKEN: tokens.bakery })
    })
    await until(() => listening.every(({ said }) => said.stderr.includes('Ctrl-C ends')), 20_000)
    const [raised] = await hand.raise(1, 'alert.triggered')
    for (const { has } of listening) await has(1)
    const seen = listening.map(({ rows }) => rows().map(({ eventId, signature }) => [eventId, signature]))
    expect(seen).toEqual([[[raised, 'valid']], [[raised, 'invalid']]])
  })

  it('waits out a service that is away, and a target that is down', async () => {
    const refused = (status: number, code: string) => () => problem(status, code, 'Not now')
    const service = await serviceWith(
      begin(0),
      ...Array.from({ length: 3 }, () => refused(503, 'unavailable')),
      () => ({ body: { data: [copy(1)], nextAfter: 1 } }),
    )
    const { rows, has, said } = listen(service, '--json', '--forward-to', 'http://127.0.0.1:1')
    await has(1)
    expect(rows()).toMatchObject([{ signature: 'unchecked', forwarded: { error: expect.any(String) } }])
    expect(said.stderr).toMatch(/Not now: trying again until it answers\nThe service answers again/)
  })

  it('ends when the webhook is gone, or is not one', async () => {
    const gone = await serviceWith(begin(3), () => problem(404, 'not_found', 'Webhook not found'))
    const env = { SVC_URL: gone.url, SVC_TOKEN: 'token' }
    const run = (name: string, ...args: string[]) =>
      home.run(['webhooks', 'listen', '--webhook', name, ...args], { env })
    expect(await run('Tickets')).toMatchObject({ code: 3, stdout: '' })
    expect((await run('Tockets')).stderr).toContain('did you mean Tickets?')
    for (const args of [
      ['--port', '1'],
      ['--cert', 'a'],
      ['--header', 'no colon'],
    ])
      expect((await run('Tickets', ...args)).code).toBe(2)
    const alone = await home.run(['webhooks', 'listen', '--header', 'A: b'], { env })
    expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining('--webhook')])
  })
})

const signedHeadersIn = (headers: Record<string, unknown>) =>
  signedHeaders(body, { at: Number(headers['x-service-timestamp']) })
