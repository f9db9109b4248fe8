import { createServer } from 'node:http'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { version as own } from '../../src/version.ts'
import { until } from '../daemon/process.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { FakeService, page } from './fake-service.ts'
import { listening } from './network.ts'
import { Home, noTerminal } from './run.ts'

let home: Home
let service: FakeService
beforeEach(async () => {
  home = new Home()
  service = await new FakeService().start()
})
afterEach(async () => {
  await service.stop()
  home.remove()
})

/** The service lists no webhook, and says that it has this version. */
const answerAs = (version: string) => {
  service.answers['GET /webhooks'] = { ...page([]), headers: { 'x-service-version': version } }
}
const list = ['webhooks', 'list']
const keptFile = (name: string) => `.cache/svc/${name}.json`
const has = (name: string) => {
  try {
    return home.read(keptFile(name)).length > 0
  } catch {
    return false
  }
}

describe.skipIf(noTerminal)('a service of another version', () => {
  const run = async (args: string[] = [], env: Record<string, string> = {}) =>
    (await home.terminal([...list, ...args], { columns: 200, env: { SVC_TOKEN: 'token', ...env } })).stdout

  it('is reported once for each context and pair of versions', async () => {
    home.write('two', '')
    home.signIn(service.url, {}, {})
    const config = home.json<{ contexts: object }>('config/config.json')
    const contexts = { ...config.contexts, other: { url: service.url, store: 'file' } }
    home.write('config/config.json', JSON.stringify({ ...config, contexts }))
    answerAs('99.1.0')
    const newer = `This is svc ${own}, and ${service.url} has 99.1.0: what is new there is missing here`
    expect(await run()).toContain(newer)
    expect(await run()).not.toContain('This is svc')
    expect(await run(['--context', 'other'])).toContain(newer)
    answerAs('99.1.1')
    expect(await run()).toContain('has 99.1.1')
    answerAs('0.0.1')
    expect(await run()).toContain('has 0.0.1: it refuses what it does not know yet')
  })

  it.each([
    ['the same version', own, [], {}],
    ['another patch', own.replace(/\d+$/, '77'), [], {}],
    ['no version', 'a\u001b[2J', [], {}],
    ['JSON', '99.0.0', ['--json'], {}],
    ['CI', '99.0.0', [], { CI: 'true' }],
    ['no directory for the cache', '99.0.0', [], { XDG_CACHE_HOME: '/dev/null' }],
  ])('is not reported with %s', async (_, version, args, env) => {
    answerAs(JSON.stringify(version).slice(1, -1))
    expect(await run(args, { SVC_URL: service.url, ...env })).not.toContain('This is svc')
    expect(service.calls('GET /webhooks')).toHaveLength(1)
  })

  it('is not reported without a terminal', async () => {
    answerAs('99.0.0')
    const { code, stderr } = await home.run(list, { env: { SVC_URL: service.url, SVC_TOKEN: 'token' } })
    expect([code, stderr]).toEqual([0, expect.not.stringContaining('99.0.0')])
    expect(has('notices')).toBe(false)
  })
})

describe.skipIf(noTerminal)('UPDATE_URL', () => {
  /** Serves the newest version; `asked` counts the requests. */
  async function releases(body: string | undefined) {
    const self = { asked: 0, body, url: '' }
    const server = createServer((_, reply) => {
      self.asked += 1
      // undefined: no answer as long as the test runs.
      if (self.body !== undefined) reply.end(self.body)
    })
    onTestFinished(() => void server.close().closeAllConnections())
    self.url = `http://127.0.0.1:${await listening(server)}/latest`
    return self
  }
  const run = async (url: string, args = ['context', 'ls'], env: Record<string, string> = {}) =>
    (await home.terminal(args, { columns: 200, env: { UPDATE_URL: url, ...env } })).stdout
  const dayAgo = () => {
    const told = home.json<Record<string, number>>(keptFile('notices'))
    const earlier = Object.entries(told).map(([key, at]) => [key, at - 86_400_000])
    home.write(keptFile('notices'), JSON.stringify(Object.fromEntries(earlier)))
  }

  it.each([
    ['a registry', '{"version":"99.2.0"}'],
    ['GitHub', '{"tag_name":"v99.2.0"}'],
  ])('as of %s is asked in the background, and told by the next command, once a day', async (_, body) => {
    const host = await releases(body)
    expect(await run(host.url)).not.toContain('is available')
    await until(() => has('newest'), 20_000)
    expect(await run(host.url, ['context', 'ls', '--json'])).not.toContain('is available')
    expect(await run(host.url)).toContain(`svc 99.2.0 is available, this is ${own}`)
    expect(await run(host.url)).not.toContain('is available')
    expect(host.asked).toBe(1)
    dayAgo()
    expect(await run(host.url)).toContain('svc 99.2.0 is available')
    await until(() => host.asked === 2, 20_000)
  })

  it('is not asked in CI, with SVC_NO_UPDATE_CHECK, without a terminal, with JSON or by completion', async () => {
    const host = await releases('{"version":"99.2.0"}')
    await run(host.url, undefined, { CI: '1' })
    await run(host.url, undefined, { SVC_NO_UPDATE_CHECK: '1' })
    await run(host.url, ['context', 'ls', '-o', 'json'])
    await run(host.url, ['completion', 'bash'])
    await home.run(['context', 'ls'], { env: { UPDATE_URL: host.url } })
    await run('')
    // Nothing was begun that could ask later.
    expect(has('notices')).toBe(false)
    expect(host.asked).toBe(0)
  })

  it.each([
    ['never', undefined],
    ['with something else', '<html>'],
    ['with no version', '{"version":"99.2.0\\u001b[2J"}'],
    ['with more than 1 MiB', `{"version":"99.2.0","more":"${'x'.repeat(1 << 20)}"}`],
  ])('that answers %s changes nothing', async (_, body) => {
    const host = await releases(body)
    await run(host.url)
    await until(() => host.asked === 1, 20_000)
    await home.run(['update-check'], { env: body === undefined ? {} : { UPDATE_URL: host.url } })
    expect(await run(host.url)).not.toContain('99.2.0')
    expect(has('newest')).toBe(false)
  })

  it('that cannot be reached does not matter to a command', async () => {
    for (const url of ['http://127.0.0.1:1/', 'no address', 'ftp://x'])
      expect((await home.terminal(['context', 'ls'], { env: { UPDATE_URL: url } })).code).toBe(0)
    expect((await home.run(['update-check'], { env: { UPDATE_URL: 'no address' } })).code).toBe(0)
  })
})

onEveryDatabase((kind, open) => {
  it.runIf(kind === 'sqlite')('the service tells its version to this client alone', async () => {
    const { url } = await startService(open)
    const path = `${url}/api/v1${api.service.health.path}`
    const asked = async (headers = {}) => (await fetch(path, { headers })).headers.get('x-service-version')
    expect([await asked({ 'x-service-client': 'cli' }), await asked()]).toEqual([own, null])
  })
})
