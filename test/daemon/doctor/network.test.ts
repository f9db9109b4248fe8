import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo, Server } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Finding } from '../../../src/core/finding.ts'
import { version } from '../../../src/version.ts'
import { hasOpenssl } from '../../cli/network.ts'
import { openMigrated, temporaryFolder } from '../../databases.ts'
import { serviceOn, testSecrets } from '../../harness.ts'
import { json, startVerifyService } from '../../messages/verify-service.ts'
import { metricsToken } from '../../metric-values.ts'
import { svc } from '../backup/binary.ts'
import { send } from '../request.ts'
import { findingsOf, summaryOf } from './findings.ts'

vi.setConfig({ testTimeout: 90_000 })

/* What the doctor learns by asking: of the running service, of its public address, and of what it sends SMS with. */

const day = 86_400_000

async function served(env: Record<string, string> = {}) {
  const { storage, ...place } = await openMigrated('sqlite')
  await storage.close()
  const { url } = await serviceOn(place, { env })
  return { place, url, port: new URL(url).port }
}

const listening = async (server: Server): Promise<number> => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

/** What stands in front of a service, and shows another time or another version than it. */
const handOn =
  (to: string, { ahead = 0, ...more }: { ahead?: number; version?: string } = {}) =>
  async (request: IncomingMessage, reply: ServerResponse) => {
    const answer = await fetch(new URL(request.url ?? '/', to))
    const body = { ...((await answer.json()) as object), ...more }
    const date = new Date(Date.now() + ahead).toUTCString()
    reply.writeHead(answer.status, { 'content-type': 'application/json', date }).end(JSON.stringify(body))
  }

it('another clock than that of the public address is a finding', async () => {
  const { place, url } = await served()
  const clockBehind = async (ahead: number) => {
    const port = await listening(createHttp(handOn(url, { ahead })))
    const all = await findingsOf(place, { PUBLIC_URL: `http://127.0.0.1:${port}`, PORT: '0' }, false)
    return summaryOf(all.filter(({ check }) => check === 'clock'))
  }
  expect(await clockBehind(0)).toEqual([])
  expect(await clockBehind(600_000)).toEqual([
    [
      'clock',
      'warning',
      expect.stringMatching(/^The clock of this machine is (59\d|60\d) s behind that of PUBLIC_URL\.$/),
    ],
  ])
  expect(await clockBehind(-600_000)).toEqual([
    ['clock', 'warning', expect.stringMatching(/ (59\d|60\d) s ahead of that of PUBLIC_URL\.$/)],
  ])
})

/** A certificate of this machine that an own authority has signed for these times. */
async function certificateFor(from: Date, to: Date) {
  const folder = await temporaryFolder()
  const at = (name: string) => join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'ignore', cwd: folder })
  const time = (date: Date) => `${date.toISOString().slice(0, 19).replaceAll(/[-:T]/g, '')}Z`
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=test', '-days', '100')
  openssl('req', '-new', ...key, '-keyout', 'key.pem', '-out', 'asked.pem', '-subj', '/CN=svc.test')
  writeFileSync(at('index'), '')
  writeFileSync(
    at('ca.conf'),
    `[ca]\ndefault_ca=own\n[own]\ndatabase=${at('index')}\nnew_certs_dir=${folder}\nrand_serial=yes\ndefault_md=sha256
policy=any\nx509_extensions=more\n[any]\ncommonName=supplied\n[more]\nsubjectAltName=IP:127.0.0.1\n`,
  )
  const files = ['-cert', 'ca.pem', '-keyfile', 'ca.key', '-in', 'asked.pem', '-out', 'cert.pem']
  openssl('ca', '-batch', '-config', 'ca.conf', ...files, '-startdate', time(from), '-enddate', time(to))
  return { ca: at('ca.pem'), pair: { key: readFileSync(at('key.pem')), cert: readFileSync(at('cert.pem')) } }
}

describe.skipIf(!hasOpenssl)('the certificate of the public address', () => {
  it.each([
    ['that ends tomorrow is a warning', 60, 1, 'warning'],
    ['of a week that ends in five days is renewed by itself', 2, 5, 'ok'],
    ['that ends in a month is well', 60, 30, 'ok'],
  ])('%s', async (_, age, left, state) => {
    const { place, url } = await served()
    const now = Date.now()
    const [from, to] = [new Date(now - age * day), new Date(now + left * day)]
    const { ca, pair } = await certificateFor(from, to)
    const address = `https://127.0.0.1:${await listening(createHttps(pair, handOn(url)))}`
    // Node reads further authorities when it starts.
    const env = { ...testSecrets, PUBLIC_URL: address, PORT: '0', NODE_EXTRA_CA_CERTS: ca }
    const { stdout } = await svc(['doctor', '--json'], place, env)
    const { findings } = JSON.parse(stdout) as { findings: Finding[] }
    const until = to.toISOString().slice(0, 10)
    expect(summaryOf(findings.filter(({ check }) => check === 'public address'))).toEqual([
      [
        'public address',
        state,
        state === 'ok'
          ? `${address} answers, certificate until ${until}`
          : `The certificate of ${address} ends on ${until}.`,
      ],
    ])
  })
})

it('limits that callers reach are named with how often', async () => {
  const { place, url, port } = await served({ METRICS_TOKEN: metricsToken, RATE_LIMIT_LOGIN_IP: '2/60' })
  const found = async () => {
    const all = await findingsOf(place, { PORT: port, METRICS_TOKEN: metricsToken }, false)
    return summaryOf(all.filter(({ check }) => check === 'limits'))
  }
  expect(await found()).toEqual([])
  const body = { email: 'nobody@example.com', password: 'wrong wrong wrong' }
  const statuses: number[] = []
  for (let n = 0; n < 5; n++) statuses.push((await send(url, 'POST', '/api/v1/auth/login', { body })).status)
  const refused = statuses.filter((status) => status === 429).length
  expect(refused).toBeGreaterThan(0)
  expect(await found()).toEqual([
    ['limits', 'warning', `1 limit reached since the service started: limit LOGIN_IP ${refused}×.`],
  ])
})

it('SMS that nobody can send are an error, whatever keeps the service from it', async () => {
  const { place } = await served()
  const stand = await startVerifyService()
  const sms = async (more: Record<string, string> = {}) => {
    const all = await findingsOf(place, { ...stand.env, PORT: '0', ...more }, false)
    return summaryOf(all.filter(({ check }) => check === 'SMS'))
  }
  const unusable = 'The SMS verification service cannot be used: '
  stand.answer = json(200, {})
  expect(await sms()).toEqual([])
  expect(stand.asked.map(({ method, form }) => [method, form])).toEqual([['GET', {}]])
  stand.answer = json(401, { code: 20003, message: 'Authenticate' })
  expect(await sms()).toEqual([['SMS', 'error', `${unusable}it answers 401.`]])
  const nowhere = 'http://127.0.0.1:9'
  expect(await sms({ TWILIO_API_URL: nowhere })).toEqual([
    ['SMS', 'error', `${unusable}${nowhere}: nothing listens there.`],
  ])
})

it('a service of another version is told apart from this program', async () => {
  const { place, url } = await served()
  const found = async (to: string) => {
    const all = await findingsOf(place, { PORT: new URL(to).port }, false)
    return summaryOf(all.filter(({ check }) => check === 'service'))
  }
  expect(await found(url)).toEqual([])
  const before = await listening(createHttp(handOn(url, { version: '0.0.9' })))
  expect(await found(`http://127.0.0.1:${before}`)).toEqual([
    ['service', 'warning', `It runs version 0.0.9, and this is svc ${version}.`],
  ])
})

it('says that everybody is a proxy where the range of the proxies has every address', async () => {
  const { storage, ...place } = await openMigrated('sqlite')
  await storage.close()
  const env = { TRUST_PROXY_HEADERS: 'true', TRUSTED_PROXY_CIDRS: '10.0.0.0/8,0.0.0.0/0', PORT: '0' }
  expect(summaryOf(await findingsOf(place, env))).toContainEqual([
    'settings',
    'warning',
    'TRUSTED_PROXY_CIDRS has 0.0.0.0/0: everybody is a proxy.',
  ])
})
