import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Registry } from 'prom-client'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { BodyBudget } from '../../daemon/body-budget.ts'
import type { LinkedAgent } from '../../daemon/gateway/agent-connection.ts'
import { type Gateway, gateway, type HeartbeatSettings } from '../../daemon/gateway.ts'
import type { AgentSocket } from '../../src/agents/socket.ts'
import { Problem } from '../../src/core/errors.ts'
import { type Closing, closings } from '../../src/live/wire/contract.ts'
import { type Asked, RawAgent, refusedUpgrade } from './raw-agent.ts'

const agentOf = (name: string) => ({ agentId: name, agentToken: 'token' })
const linked = (name: string): LinkedAgent => ({
  agentId: name,
  deviceId: name,
  orgId: 'org',
  partnerId: 'partner',
  tokenHash: 'hash',
  ip: '127.0.0.1',
  userAgent: null,
})
const wait = { timeoutMs: 5000 }
const question = { type: 'event_logs_list', payload: {} }

/** There are no pending commands, and none was sent. */
const noCommands: AgentSocket = {
  heartbeat: async () => ({ commands: [], manifestTrustKeys: [] }),
  waiting: async () => [],
  result: async () => 'foreign',
  updateStatus: async () => {},
}

const bodies = new BodyBudget(
  { whole: 256 * 1024 * 1024, perCaller: 32 * 1024 * 1024 },
  'requests',
  new Registry(),
)

type Fixture = {
  url: string
  agents: Gateway
  verdicts: Map<string, Closing>
  warned: object[]
  failed: object[]
}

/** The gateway on a bare server; the test decides who is admitted and who may stay. */
async function startGateway(pace: Partial<HeartbeatSettings> = {}, budget = bodies): Promise<Fixture> {
  const server: Server = createServer()
  const verdicts = new Map<string, Closing>()
  const warned: object[] = []
  const failed: object[] = []
  const admission = {
    async admit(_: unknown, agentId: string) {
      if (agentId === 'stranger') throw new Problem('invalid_agent_credentials')
      if (agentId === 'unlucky') throw new Problem('unavailable')
      if (agentId === 'odd') throw new Error('nobody expected this')
      return linked(agentId)
    },
    meter: () => {},
    revise: async (agents: readonly LinkedAgent[]) => agents.map(({ deviceId }) => verdicts.get(deviceId)),
  }
  const log = { warn: (about: object) => warned.push(about), error: (about: object) => failed.push(about) }
  const agents = gateway(admission, noCommands, log, budget, { reviseMs: 1, ...pace })
  agents.serve(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    await agents.close()
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    agents,
    verdicts,
    warned,
    failed,
  }
}

describe('a connection', () => {
  it('begins with a connected frame, and carries queries and results', async () => {
    const { url, agents } = await startGateway()
    const agent = new RawAgent(url, 'one', 'token')
    expect(await agent.frame(({ type }) => type === 'connected')).toMatchObject({
      agentId: 'one',
      timestamp: expect.any(String),
      capabilities: expect.any(Array),
    })
    agent.answer = ({ type, payload }) => ({ result: { type, payload } })
    expect(await agents.links.request('one', { type: 'x', payload: { a: 1 } }, wait)).toEqual({
      status: 'completed',
      result: { type: 'x', payload: { a: 1 } },
    })
    agent.answer = () => ({ stdout: '{"logs":[]}' })
    expect(await agents.links.request('one', question, wait)).toMatchObject({ result: { logs: [] } })
    agent.answer = () => ({ status: 'failed', error: 'no', code: 'log_not_found' })
    expect(await agents.links.request('one', question, wait)).toEqual({
      status: 'failed',
      error: 'no',
      code: 'log_not_found',
    })
  })

  it('is refused before the upgrade, with the usual error body', async () => {
    const { url } = await startGateway()
    expect(await refusedUpgrade(url, '/api/v1/agent-ws/stranger/ws', {})).toMatchObject({
      status: 401,
      body: {
        error: 'Invalid agent credentials',
        code: 'invalid_agent_credentials',
        requestId: expect.any(String),
      },
    })
    expect((await refusedUpgrade(url, '/api/v1/elsewhere', {})).status).toBe(404)
  })

  it('logs unexpected failures, but none of a busy service', async () => {
    const { url, failed } = await startGateway()
    expect((await refusedUpgrade(url, '/api/v1/agent-ws/unlucky/ws', {})).status).toBe(503)
    expect(failed).toEqual([])
    expect((await refusedUpgrade(url, '/api/v1/agent-ws/odd/ws', {})).status).toBe(500)
    expect(failed).toEqual([{ err: expect.objectContaining({ message: 'nobody expected this' }) }])
  })

  it('is replaced by a newer one of the same agent, whose results alone count', async () => {
    const { url, agents } = await startGateway()
    const older = await RawAgent.connect(url, agentOf('one'))
    const asked = agents.links.request('one', question, wait)
    const command = (await older.frame((frame) => 'id' in frame)) as Asked
    const newer = await RawAgent.connect(url, agentOf('one'), () => ({ result: 'newer' }))
    expect(await asked).toEqual({ status: 'unreachable' })
    expect(await older.closed).toEqual({ code: 4002, reason: closings.superseded.reason })
    expect(await agents.links.request('one', question, wait)).toMatchObject({ result: 'newer' })
    // A repeated result for the older connection is no probe.
    for (let n = 0; n < 10; n++) newer.result(command.id, { result: 'older' })
    expect(await agents.links.request('one', question, wait)).toMatchObject({ result: 'newer' })
  })

  it('lasts as long as pings are answered', async () => {
    const { url, agents } = await startGateway({ pingMs: 30, pongMs: 60 })
    const alive = await RawAgent.connect(url, agentOf('alive'), () => ({ result: 'here' }))
    const silent = await RawAgent.connect(url, agentOf('silent'))
    silent.pongs = false
    expect(await silent.closed).toMatchObject({ code: 4008 })
    await alive.frame(({ type }) => type === 'ping')
    expect(await agents.links.request('alive', question, wait)).toMatchObject({ result: 'here' })
    expect(agents.links.has('silent')).toBe(false)
  })

  it.each([
    ['decommissioned', 4041],
    ['moved', 4040],
    ['refused', 4001],
  ] as const)('ends when its agent is %s', async (verdict, code) => {
    const { url, agents, verdicts } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    const other = await RawAgent.connect(url, agentOf('other'), () => ({ result: 1 }))
    verdicts.set('one', closings[verdict])
    agents.revise()
    expect(await agent.closed).toMatchObject({ code })
    expect(await agents.links.request('one', question, wait)).toEqual({ status: 'unreachable' })
    expect(await agents.links.request('other', question, wait)).toMatchObject({ result: 1 })
    other.socket.terminate()
  })

  it('is checked at every ping, even without a notification of a change', async () => {
    const { url, verdicts } = await startGateway({ pingMs: 30, pongMs: 10_000 })
    const agent = await RawAgent.connect(url, agentOf('one'))
    verdicts.set('one', closings.refused)
    expect(await agent.closed).toMatchObject({ code: 4001 })
  })

  it('is closed with 1001 when the service ends, and no new one is accepted', async () => {
    const { url, agents } = await startGateway()
    const all = await Promise.all(['a', 'b', 'c'].map((name) => RawAgent.connect(url, agentOf(name))))
    const asked = agents.links.request('a', question, wait)
    await agents.close()
    expect(await asked).toEqual({ status: 'unreachable' })
    expect(await Promise.all(all.map(({ closed }) => closed))).toEqual(
      all.map(() => ({ code: 1001, reason: closings.leaving.reason })),
    )
    expect((await refusedUpgrade(url, '/api/v1/agent-ws/late/ws', {})).status).toBe(503)
  })
})

describe('invalid frames', () => {
  it.each([
    ['no JSON', 'hello'],
    ['null', 'null'],
    ['a number', '7'],
    ['a list', '[]'],
    ['an unknown type', '{"type":"reboot_everything"}'],
    ['a prototype', '{"__proto__":{"type":"pong"}}'],
    ['a result without an id', '{"type":"command_result","status":"completed"}'],
    ['a result of an unknown status', '{"type":"command_result","commandId":"x","status":"maybe"}'],
    ['an id that is no string', '{"type":"command_result","commandId":{"length":{"toString":null}}}'],
    ['a pong without a ping', '{"type":"pong"}'],
    ['bytes', Buffer.from('{"type":"pong"}')],
    ['nothing', ''],
    ['a large frame that was not requested', JSON.stringify({ type: 'pong', more: 'x'.repeat(70_000) })],
  ])('get an error and change nothing: %s', async (_, said) => {
    const { url, agents } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'), () => ({ result: 'still here' }))
    agent.socket.send(said)
    expect(await agent.frame(({ type }) => type === 'error')).toMatchObject({ code: 'INVALID_MESSAGE' })
    expect(await agents.links.request('one', question, wait)).toMatchObject({ result: 'still here' })
  })

  it('end the connection when there are too many', async () => {
    const { url } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    for (let n = 0; n < 100; n++) agent.say('nonsense')
    expect(await agent.closed).toMatchObject({ code: 1008 })
  })

  it('end the connection when there are too many, unrequested pings and pongs included', async () => {
    const { url } = await startGateway()
    for (const kind of ['ping', 'pong'] as const) {
      const agent = await RawAgent.connect(url, agentOf('one'))
      let sent = 0
      const send = async (count: number) => {
        for (const end = sent + count; sent < end; sent += 1) {
          agent.socket[kind]()
          // The library itself disconnects where more than sixty pings wait for their pong.
          if (kind === 'ping') await once(agent.socket, 'pong')
        }
      }
      await send(599)
      agent.say({ type: 'nonsense' })
      await agent.frame(({ type }) => type === 'error')
      await send(1)
      expect(await agent.closed).toMatchObject({ code: 1008 })
    }
  })

  it('end the connection when one is larger than any may be', async () => {
    const { url, agents } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    agent.say('x'.repeat(16 * 1024 * 1024 + 1))
    expect(await agent.closed).toMatchObject({ code: 1009 })
    expect(agents.links.has('one')).toBe(false)
  })

  it('that violate the WebSocket protocol affect only their own connection', async () => {
    const { url, agents } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    const other = await RawAgent.connect(url, agentOf('other'), () => ({ result: 1 }))
    const raw = (agent.socket as unknown as { _socket: import('node:net').Socket })._socket
    raw.write(Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff]))
    expect((await agent.closed).code).toBe(1002)
    expect(await agents.links.request('other', question, wait)).toMatchObject({ result: 1 })
    other.socket.terminate()
  })
})

describe('results', () => {
  it("of other agents' commands do not count; the fifth in five minutes ends the connection", async () => {
    const { url, agents, warned } = await startGateway()
    const victim = await RawAgent.connect(url, agentOf('victim'))
    const prober = await RawAgent.connect(url, agentOf('prober'))
    const asked = agents.links.request('victim', question, wait)
    const { id } = (await victim.frame((frame) => 'id' in frame)) as Asked
    for (let n = 0; n < 4; n++) prober.result(id, { result: 'forged' })
    prober.say('nonsense')
    await prober.frame(({ type }) => type === 'error')
    prober.result(id, { result: 'forged' })
    expect(await prober.closed).toMatchObject({ code: 4001 })
    expect(warned).toEqual([{ deviceId: 'prober', orgId: 'org' }])
    victim.result(id, { result: 'true' })
    expect(await asked).toEqual({ status: 'completed', result: 'true' })
  })

  it('that are late are dropped silently', async () => {
    const { url, agents } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    const late: string[] = []
    for (let n = 0; n < 6; n++) {
      const asked = agents.links.request('one', question, { timeoutMs: 20 })
      late.push(((await agent.frame((frame) => 'id' in frame)) as Asked).id)
      expect(await asked).toEqual({ status: 'timeout' })
    }
    for (const id of late) agent.result(id, { result: 'late' })
    agent.answer = () => ({ result: 'in time' })
    expect(await agents.links.request('one', question, wait)).toMatchObject({ result: 'in time' })
  })

  it('may be large when they were requested', async () => {
    const { url, agents } = await startGateway()
    const text = 'x'.repeat(5_000_000)
    await RawAgent.connect(url, agentOf('one'), () => ({ result: { text } }))
    expect(await agents.links.request('one', question, wait)).toEqual({
      status: 'completed',
      result: { text },
    })
  })

  it('are no longer awaited once the caller has gone', async () => {
    const { url, agents } = await startGateway()
    await RawAgent.connect(url, agentOf('one'))
    const gone = new AbortController()
    const asked = agents.links.request('one', question, { ...wait, signal: gone.signal })
    gone.abort()
    expect(await asked).toEqual({ status: 'timeout' })
  })

  it('are awaited for at most eight queries at a time', async () => {
    const { url, agents } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    const asked = Array.from({ length: 9 }, () => agents.links.request('one', question, wait))
    expect(await asked[8]).toEqual({ status: 'busy' })
    for (let n = 0; n < 8; n++) {
      agent.result(((await agent.frame((frame) => 'id' in frame)) as Asked).id, { result: n })
    }
    expect(await Promise.all(asked.slice(0, 8))).toEqual(
      Array.from({ length: 8 }, (_, n) => ({ status: 'completed', result: n })),
    )
  })
})

describe('an agent that fills memory', () => {
  it('with an endless frame is disconnected, and its budget is released', async () => {
    const budget = new BodyBudget(
      { whole: 256 * 1024 * 1024, perCaller: 1024 * 1024 },
      'requests',
      new Registry(),
    )
    const { url } = await startGateway({}, budget)
    const agent = await RawAgent.connect(url, agentOf('one'))
    for (let n = 0; n < 32; n++) agent.socket.send('x'.repeat(64 * 1024), { fin: false })
    expect(await agent.closed).toMatchObject({ code: closings.busy.code })
    await expect.poll(() => budget.used, { timeout: 10_000 }).toBe(0)
  })

  it('with too many or too deeply nested values gets an error and stays connected', async () => {
    const { url } = await startGateway()
    const agent = await RawAgent.connect(url, agentOf('one'))
    for (const text of ['['.repeat(30_000), `{"type":${'['.repeat(1000)}${']'.repeat(1000)}}`]) {
      agent.say(text)
      expect(await agent.frame(({ type }) => type === 'error')).toMatchObject({
        message: 'the frame is nested too deep, or has too many values',
      })
    }
  })
})

describe('two hundred agents that are queried at once', () => {
  let agents: Gateway
  let server: Server
  const names = Array.from({ length: 200 }, (_, n) => `agent-${n}`)

  beforeAll(async () => {
    server = createServer()
    agents = gateway(
      {
        admit: async (_, agentId) => linked(agentId),
        meter: () => {},
        revise: async (some) => some.map(() => undefined),
      },
      noCommands,
      { warn: () => {}, error: () => {} },
      bodies,
    )
    agents.serve(server)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    await Promise.all(
      names.map((name) =>
        RawAgent.connect(url, agentOf(name), ({ payload }) => ({ result: { name, ...payload } })),
      ),
    )
  })
  afterAll(async () => {
    await agents.close()
    server.closeAllConnections()
    server.close()
  })

  it('each answer their own query', async () => {
    const asked = names.flatMap((name) => [1, 2, 3, 4].map((n) => ({ name, n })))
    const outcomes = await Promise.all(
      asked.map(({ name, n }) => agents.links.request(name, { type: 'x', payload: { n } }, wait)),
    )
    expect(outcomes).toEqual(asked.map((result) => ({ status: 'completed', result })))
  })
})
