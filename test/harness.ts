import { pino } from 'pino'
import { onTestFinished } from 'vitest'
import { readConfig } from '../daemon/config.ts'
import { type Resolve, resolveHost } from '../daemon/integrations/guard.ts'
import type { Integrations } from '../daemon/integrations/open.ts'
import { type ServeOptions, type Service, serve } from '../daemon/serve.ts'
import { type Client, createClient } from '../src/core/client.ts'
import { defaultLimits } from '../src/core/limits.ts'
import { newId } from '../src/core/new-id.ts'
import { OutboundFailure } from '../src/core/outbound.ts'
import { type Clock, type Instant, systemClock } from '../src/core/time.ts'
import { insertUser } from '../src/identity/store.ts'
import { fakeReleases } from './agents/fake-releases.ts'
import { releaseKey } from './agents/signed-release.ts'
import type { Open } from './databases.ts'
import { ciIssuer } from './trust/issuer.ts'

/** A clock that stands still until it is moved. */
export type TestClock = Clock & { forward(seconds: number): void }

export function testClock(start = '2026-03-01T12:00:00.000Z'): TestClock {
  let now = Date.parse(start)
  return Object.assign(() => new Date(now).toISOString(), {
    forward: (seconds: number) => {
      now += seconds * 1000
    },
  })
}

export const adminEmail = 'admin@example.com'
export const adminPassword = 'correct horse battery staple'

/** Of services on a fresh database: its password is hashed once and for all, and as cheaply as in cheap-passwords.ts. */
const administrator = {
  id: newId(),
  email: adminEmail,
  name: 'System administrator',
  passwordHash:
    '$argon2id$v=19$m=64,t=1,p=1$eOGL88xa2Z8nWuHMFq1jzA$PNfDmHT8+4Qc0t2lHu0XuPp791fcWn5fk8nqR7ys3XQ',
  isSystem: true,
}

/** Limits would get in the way of tests that are not about them. */
export const noLimits = Object.fromEntries(
  Object.keys(defaultLimits).map((name) => [`RATE_LIMIT_${name}`, 'off']),
)

/** What users have: for tests of what they do all day. */
export const usualLimits = Object.fromEntries(
  Object.entries(defaultLimits).map(([name, { count, seconds }]) => [
    `RATE_LIMIT_${name}`,
    `${count}/${seconds}`,
  ]),
)

/** Same in every process that works on one database. */
export const testSecrets = {
  JWT_SECRET: 'PHXq8b9DsX+YFc4PacPescFk0DSwo7kDQduSA9o90wI=',
  APP_ENCRYPTION_KEY: 'YJke2C/PB6ZHQF0hW+OJAgV7Lobb3I4S1Hd2SMRVA1s=',
  ENROLLMENT_KEY_PEPPER: 'CMUX0CNQnu9/XNJOdSv9acP8yLStgRjH7fDwlwPKBKs=',
  MFA_RECOVERY_CODE_PEPPER: '7G0TV1kPsts7Uu51v4/c0Mx6vnuKT9NvjCohk2F1t+E=',
}

export type TestService = Service & {
  dataDir: string
  databaseUrl: string | undefined
  /** On fresh databases, what decides which rows its calls make. */
  setting?: () => { env: string; now: Instant }
  /** A client of it, with a bearer token or none. */
  client(token?: string, headers?: Record<string, string>): Client
}

export type ServiceOptions = {
  env?: Record<string, string>
  clock?: Clock
  /** Stand-ins for the log and for ports to the outside. */
  outside?: Partial<ServeOptions>
}

/** Every name but those of nobody is somebody's. */
const everyName: Resolve = (hostname, _, done) =>
  hostname.endsWith('.invalid')
    ? done(new Error(`getaddrinfo ENOTFOUND ${hostname}`), [])
    : done(null, [{ address: '93.184.215.14', family: 4 }])

const silentLog = pino({ level: 'silent' })

/** Tests send nothing out of this machine; an issuer of tokens and a host of releases answer that are not out there. */
const noOutside: Pick<Integrations, 'outbound' | 'releases'> = {
  releases: fakeReleases,
  outbound: {
    send: async ({ url }) => {
      const reply = await ciIssuer.answer(url)
      if (!reply) throw new OutboundFailure('refused', 'tests send nothing out of this machine')
      return reply
    },
    locateHost: (url) => resolveHost(url, { allowed: [], ca: undefined }, everyName),
    close: async () => {},
  },
}

/** The real service on a fresh database and a free port, in this process; closed when the test ends. */
export async function startService(open: Open, options: ServiceOptions = {}): Promise<TestService> {
  const { dataDir, databaseUrl, storage } = await open()
  const { clock = systemClock } = options
  await storage.write((tx) => insertUser(tx, administrator, clock()))
  const service = await serviceOn({ dataDir, databaseUrl }, options)
  return { ...service, setting: () => ({ env: JSON.stringify(options.env ?? {}), now: clock() }) }
}

/** The same on a database that is there already: a second replica, or a restart. */
export async function serviceOn(
  { dataDir, databaseUrl }: { dataDir: string; databaseUrl?: string | undefined },
  { env = {}, clock = systemClock, outside }: ServiceOptions = {},
): Promise<TestService> {
  const config = readConfig({
    ...noLimits,
    ...testSecrets,
    ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }),
    SVC_DATA_DIR: dataDir,
    SVC_ADMIN_EMAIL: adminEmail,
    SVC_ADMIN_PASSWORD: adminPassword,
    PORT: '0',
    LOG_LEVEL: 'silent',
    // Would change rows under a test that takes longer than two minutes.
    AUDIT_RETENTION_ENABLED: 'false',
    ENABLE_REGISTRATION: 'true',
    RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: releaseKey.publicKey,
    ...env,
  })
  const service = await serve(config, clock, {
    log: silentLog,
    // Would change rows under a test that takes longer than half a minute.
    firstRunMs: 600_000,
    ...(env.OUTBOUND_ALLOW_CIDRS === undefined && noOutside),
    ...outside,
  })
  try {
    onTestFinished(service.close)
  } catch {
    // Started from beforeAll: the caller closes it.
  }
  return {
    ...service,
    dataDir,
    databaseUrl,
    client: (token, headers) => clientOf(service.url, token, headers),
  }
}

export function clientOf(url: string, token?: string, headers: Record<string, string> = {}): Client {
  const authorization: Record<string, string> =
    token === undefined ? {} : { authorization: `Bearer ${token}` }
  return createClient({
    url,
    retries: 0,
    headers: { 'x-service-client': 'cli', ...headers },
    credentials: { headers: async () => authorization },
  })
}
