import { Agent, request } from 'undici'
import { firstLine, fromHere, start, stop, temporaryFolder } from './children.ts'
import { atLeast, median, type Row, spreadOf } from './figures.ts'
import { startLoader } from './loader.ts'
import { type Server, startBare, startService } from './servers.ts'
import { buildWorld, password, type World } from './world.ts'

export type SessionsOptions = { rounds: number; milliseconds: number }

/** As many as there is work for: a check of a password keeps a core busy. */
const lanes = 8

/** Signing in next to bare argon2, which bounds it; keeping a session going next to a bare route. */
export async function sessions(options: SessionsOptions, say: (line: string) => void): Promise<Row[]> {
  const place = { dataDir: temporaryFolder('data') }
  const world = await buildWorld(place)
  const service = await startService('svc', place)
  try {
    say('sessions: sign-in')
    const signIn = await signInRow(service, world, options)
    say('sessions: refresh')
    return [signIn, await refreshRow(service, world, options)]
  } finally {
    await stop(service.child)
  }
}

async function signInRow({ url }: Server, { email }: World, { rounds, milliseconds }: SessionsOptions) {
  const load = startLoader()
  const body = JSON.stringify({ email, password })
  const requests = [{ method: 'POST', path: '/api/v1/auth/login', headers: {}, body }]
  const order = { url, requests, status: 200, connections: lanes, milliseconds }
  const [ours, bare]: [number[], number[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    const first = await load(order)
    ours.push(first.requests / first.seconds)
    bare.push(await bareChecks(milliseconds))
  }
  const ratio = spreadOf(ours.map((rate, round) => rate / bare[round]!))
  return {
    bench: 'sessions',
    subject: 'sign-in with a password',
    against: 'bare argon2',
    ratio,
    ...atLeast(ratio.median, 0.7),
    figures: { 'logins/s': median(ours), 'argon2/s': median(bare) },
  }
}

async function bareChecks(milliseconds: number): Promise<number> {
  const child = start([fromHere('./argon2-child.ts'), String(lanes), String(milliseconds)])
  return firstLine(child, (line) => (JSON.parse(line) as { perSecond: number }).perSecond)
}

type Reply = { tokens: { refreshToken: string } }

/** Every lane spends the token of the answer before. */
async function refreshRow(service: Server, { email }: World, { rounds, milliseconds }: SessionsOptions) {
  const agent = new Agent({ connections: lanes, pipelining: 1 })
  const post = async (url: string, body: unknown): Promise<Reply> => {
    const headers = { 'content-type': 'application/json', 'x-service-client': 'cli' }
    const answer = await request(url, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      dispatcher: agent,
    })
    const reply = (await answer.body.json()) as Reply
    if (answer.statusCode !== 200) throw new Error(`${url}: ${answer.statusCode} ${JSON.stringify(reply)}`)
    return reply
  }
  const login = () => post(`${service.url}/api/v1/auth/login`, { email, password })
  let tokens = await Promise.all(
    Array.from({ length: lanes }, async () => (await login()).tokens.refreshToken),
  )
  const reply = await post(`${service.url}/api/v1/auth/refresh`, { refreshToken: tokens[0] })
  tokens[0] = reply.tokens.refreshToken
  const path = '/api/v1/auth/refresh'
  const bare = await startBare('bare Fastify', 'fastify', [
    { method: 'POST', path, status: 200, reply, schema: {} },
  ])

  const rate = async (url: string, keep: boolean): Promise<number> => {
    const begin = performance.now()
    let count = 0
    const spend = async (first: string) => {
      let token = first
      while (performance.now() - begin < milliseconds) {
        const answer = await post(`${url}${path}`, { refreshToken: token })
        if (keep) token = answer.tokens.refreshToken
        count += 1
      }
      return token
    }
    const last = await Promise.all(tokens.map(spend))
    if (keep) tokens = last
    return count / ((performance.now() - begin) / 1000)
  }
  const [ours, theirs]: [number[], number[]] = [[], []]
  await rate(service.url, true)
  await rate(bare.url, false)
  for (let round = 0; round < rounds; round++) {
    ours.push(await rate(service.url, true))
    theirs.push(await rate(bare.url, false))
  }
  await agent.close()
  await stop(bare.child)
  return {
    bench: 'sessions',
    subject: 'refresh',
    against: 'bare Fastify',
    ratio: spreadOf(ours.map((one, round) => one / theirs[round]!)),
    figures: { 'refreshes/s': median(ours), 'bare/s': median(theirs) },
  }
}
