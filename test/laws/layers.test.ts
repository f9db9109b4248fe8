import { describe, expect, it } from 'vitest'
import { cyclesOf, importsOf, productSources } from './imports.ts'
import { breachesOf, capabilities, databaseChoosers, ruleNames } from './layers.ts'

const sources = productSources()

describe('the layers', () => {
  it('are respected by every file of the product', () => {
    expect(breachesOf(sources)).toEqual([])
  })

  it('are checked in all sources, and every import of our own files resolves', () => {
    const paths = new Set(sources.map(({ path }) => path))
    expect(paths.size).toBeGreaterThan(100)
    for (const top of ['src/core/', 'src/storage/', 'src/tenancy/', 'daemon/', 'commands/', 'migrations/']) {
      expect([...paths].some((path) => path.startsWith(top))).toBe(true)
    }
    const targets = sources.flatMap((source) => importsOf(source).filter(({ ours }) => ours))
    expect(targets.length).toBeGreaterThan(300)
    expect(targets.map(({ target }) => target).filter((target) => !paths.has(target))).toEqual([])
  })

  it('include every capability, with agents last before those that read and set up all', () => {
    expect(new Set(capabilities).size).toBe(capabilities.length)
    expect(capabilities.slice(-3)).toEqual(['agents', 'overview', 'configuration'])
  })
})

/** A schema may be asked directly whether it accepts undefined or null. */
const throwing = /\.safeParse\((?!undefined|null)/

describe('external input', () => {
  it('is parsed by the safeParse of src/core/schema.ts, which never throws', () => {
    const reading = sources.filter(({ text }) => throwing.test(text)).map(({ path }) => path)
    expect(reading).toEqual(['src/core/schema.ts'])
  })
})

/** Each line breaks one rule: a file, its text, the rule. */
const wrongs: [path: string, text: string, rule: string][] = [
  ['src/core/a.ts', `import { x } from '../tenancy/contract.ts'`, 'src/core imports only src/core'],
  [
    'src/storage/a.ts',
    `import type { X } from '../handler.ts'`,
    'src/storage imports only src/core and itself',
  ],
  [
    'src/api.ts',
    `import { orgs } from './tenancy/handlers.ts'`,
    'src/api.ts imports only contracts and core, src/version.ts only core',
  ],
  [
    'src/handler.ts',
    `import { openStorage } from './storage/open.ts'`,
    'src/handler.ts imports the vocabulary, and types of the storage',
  ],
  [
    'src/tenancy/handlers.ts',
    `import { x } from '../devices/store.ts'`,
    'a capability imports core, storage, src/handler.ts, src/version.ts and capabilities to its left',
  ],
  [
    'src/audit/jobs.ts',
    `import { x } from '../../daemon/loop.ts'`,
    'a capability imports core, storage, src/handler.ts, src/version.ts and capabilities to its left',
  ],
  [
    'src/devices/store.ts',
    `export * from '../cli/print.ts'`,
    'a capability imports core, storage, src/handler.ts, src/version.ts and capabilities to its left',
  ],
  [
    'src/devices/contract.ts',
    `import { x } from './store.ts'`,
    'contract.ts and lenient.ts import only core and other contracts',
  ],
  [
    'src/devices/rules.ts',
    `import { x, type Y } from './store.ts'`,
    'rules.ts runs on core, contracts and other rules alone',
  ],
  ['src/devices/store.ts', `import type { X } from '../handler.ts'`, 'a store knows no handlers'],
  [
    'src/identity/phones/handlers.ts',
    `import { verifyPassword } from '../password-guard/verify.ts'`,
    'a password is held against an account by the password guard alone, where wrong ones are counted',
  ],
  [
    'src/sso/handlers.ts',
    `import { verify } from '@node-rs/argon2'`,
    'passwords are hashed in one place, and verified in one',
  ],
  [
    'daemon/app.ts',
    `import { x } from '../src/cli/print.ts'`,
    'the daemon knows nothing of the command line',
  ],
  [
    'commands/keys/create.ts',
    `import { x } from '../../src/credentials/store.ts'`,
    'commands see contracts and src/cli, never a server or a database',
  ],
  [
    'commands/keys/create.ts',
    `async run() { await import('../../daemon/run.ts') }`,
    'commands see contracts and src/cli, never a server or a database',
  ],
  [
    'commands/serve.ts',
    `import { runService } from '../daemon/run.ts'`,
    'commands see contracts and src/cli, never a server or a database',
  ],
  [
    'commands/audit/list.ts',
    `import { x } from '../../src/audit/chain.ts'`,
    'commands see contracts and src/cli, never a server or a database',
  ],
  ['src/cli/api-client.ts', `import { x } from '../identity/tokens.ts'`, 'src/cli sees contracts only'],
  [
    'src/device-agent/run.ts',
    `import { x } from '../agents/store.ts'`,
    'src/device-agent sees contracts and src/cli only',
  ],
  [
    'migrations/0002_more.ts',
    `import type { Tables } from '../src/storage/tables.ts'`,
    'a migration outlives the code: it imports only storage/columns.ts',
  ],
  [
    'src/cli/api-client.ts',
    `const { Kysely } = await import('kysely')`,
    'client code loads no package of the server',
  ],
  ['src/devices/rules.ts', `import { readFile } from 'node:fs/promises'`, 'rules.ts does no I/O'],
  ['src/devices/contract.ts', `import { v7 } from 'uuid'`, 'contract.ts needs zod alone'],
  ['migrations/0002_more.ts', `import { z } from 'zod'`, 'a migration needs kysely alone'],
  ['daemon/app.ts', 'const it = await import(name)', 'every import can be read from the text'],
  ['src/devices/rules.ts', 'export async function decide() {}', 'rules.ts waits for nothing'],
  ['src/devices/rules.ts', 'export const now = () => Date.now()', 'rules.ts is told the time'],
  ['daemon/log.ts', 'if (process.env.X) {}', 'of the server, only daemon/config.ts reads the environment'],
  [
    'src/audit/store.ts',
    'const { X } = process.env',
    'of the server, only daemon/config.ts reads the environment',
  ],
  ['commands/login.ts', 'if (process.env.X) {}', 'a command leaves the environment to src/cli'],
  [
    'daemon/reply-writer.ts',
    `const pick = new Function('value', text)`,
    'text becomes code in storage/schema/rows.ts alone',
  ],
  [
    'src/webhooks/worker/fan-out.ts',
    'const batch = storage.dialect === "sqlite" ? 100 : 200',
    'only src/storage and migrations know which database it is',
  ],
  ...[
    `import { describeWait } from '../src/storage/postgres/blockers.ts'`,
    `const { vacuumSqlite } = await import('../src/storage/sqlite/vacuum.ts')`,
    `import type { Slot } from '../src/storage/upkeep/postgres.ts'`,
    `import { postgresFindings } from '../src/storage/upkeep/postgres-findings.ts'`,
  ].map((text): [string, string, string] => [
    'daemon/schema.ts',
    text,
    'what only one database has is imported by src/storage alone',
  ]),
  ...[
    `if (upkeep.kind === 'sqlite') return`,
    `const isServer = "postgres" === kind`,
    `switch (kind) { case 'postgres': return 1 }`,
    `const system = isOwn ? 'sqlite' : 'postgresql'`,
    `if (state.version.startsWith('SQLite ')) return`,
    `if (url.protocol === 'postgres:') return`,
    `if (/^postgres(ql)?:/.test(url)) return`,
    `const rows = { sqlite: 100, postgres: 200 }[kind]`,
  ].map((text): [string, string, string] => [
    'daemon/upkeep-watch.ts',
    text,
    'outside src/storage and migrations no value is the name of a database',
  ]),
  ...[
    `const acceptsNul = place.databaseUrl === undefined`,
    `if (undefined !== place.databaseUrl) return`,
    `const rows = databaseUrl ? 200 : 100`,
    `if (config.databaseUrl) return`,
    `const isFile = !config.place?.databaseUrl`,
    `const url = databaseUrl ?? dataDir`,
    `const isServer = databaseUrl?.startsWith('p')`,
    `const isServer = 'databaseUrl' in place`,
    `const isServer = Boolean(place.databaseUrl)`,
    `const { dataDir, databaseUrl: url } = place`,
    `const url = place.databaseUrl`,
    `function rowsOf({ databaseUrl: url }: Place) {}`,
    `const { databaseUrl = '' } = place`,
    `if (env.DATABASE_URL === undefined) return`,
  ].map((text): [string, string, string] => [
    'daemon/copy/copy.ts',
    text,
    'outside src/storage and migrations nothing depends on whether there is a databaseUrl',
  ]),
  ['src/utils/text.ts', '', 'every folder of src has its place in the order'],
  ['src/core/a.ts', `import './a.ts'`, 'no import goes round in a circle'],
]

describe('the check of the layers', () => {
  it.each(wrongs)('finds in %s: %s', (path, text, rule) => {
    expect(breachesOf([{ path, text }]).map((broken) => broken.rule)).toContain(rule)
  })

  it('makes no exception of a file that tells no databases apart', () => {
    const needed = sources.filter(
      ({ path, text }) =>
        path in databaseChoosers &&
        breachesOf([{ path: 'daemon/x.ts', text }]).some(({ rule }) =>
          rule.startsWith('outside src/storage'),
        ),
    )
    expect(needed.map(({ path }) => path).sort()).toEqual(Object.keys(databaseChoosers).sort())
  })

  it('is shown to fail for each of its rules', () => {
    expect(new Set(wrongs.map(([, , rule]) => rule))).toEqual(new Set(ruleNames))
  })

  it.each([
    ['commands/serve.ts', `const { runService } = await import('../daemon/run.ts')`],
    ['commands/audit/verify.ts', `import { ChainVerifier } from '../../src/audit/chain.ts'`],
    ['src/agents/rules.ts', `import type { DeviceRow } from '../storage/tables.ts'`],
    ['src/agents/store.ts', `import { x } from '../devices/store.ts'`],
    ['src/agents/store.ts', `import { prepared } from '../storage/query/prepared.ts'`],
    ['src/agents/upgrades/rules.ts', `import { nextUpgrade } from '../versions/upgrade-path.ts'`],
    ['src/device-agent/update.ts', `import {verifyManifest} from '../agents/versions/manifest.ts'`],
    ['src/devices/jobs.ts', `const batch = storage.traits.batchSize`],
    ['daemon/tracing.ts', `const system = storage.traits.systemName`],
    ['daemon/doctor/database.ts', `const remedy = 'raise max_connections of PostgreSQL'`],
    ['daemon/doctor/database.ts', `await openStorage({ databaseUrl, dataDir, postgres: { poolSize: 1 } })`],
    ['daemon/drill.ts', `type Place = { databaseUrl?: string | undefined; dataDir: string }`],
    ['daemon/drill.ts', `const env = environmentOn({ databaseUrl: place.databaseUrl })`],
    ['src/devices/rules.ts', `// import { x } from '../agents/store.ts'\n/** await */`],
  ])('accepts %s: %s', (path, text) => {
    expect(breachesOf([{ path, text }])).toEqual([])
  })

  it('finds a cycle through types, re-exports and lazy imports', () => {
    const circle = [
      { path: 'daemon/a.ts', text: `import type { B } from './b.ts'` },
      { path: 'daemon/b.ts', text: `export * from './c.ts'` },
      { path: 'daemon/c.ts', text: `const a = () => import('./a.ts')` },
    ]
    expect(cyclesOf(circle)).toEqual([['daemon/a.ts', 'daemon/b.ts', 'daemon/c.ts', 'daemon/a.ts']])
  })

  it('parses every form of import', () => {
    const text = `import a, { b } from 'one'
import {
  type C,
  d,
} from './two.ts'
import { type E, type F } from './three.ts'
import 'four'
export { g } from './five.ts'
export type * from './six.ts'
  const h = await import('seven')
type I = typeof import('eight')`
    expect(importsOf({ path: 'src/x/y.ts', text }).map((it) => [it.target, it.typeOnly, it.lazy])).toEqual([
      ['one', false, false],
      ['src/x/two.ts', false, false],
      ['src/x/three.ts', true, false],
      ['src/x/five.ts', false, false],
      ['src/x/six.ts', true, false],
      ['four', false, false],
      ['seven', false, true],
      ['eight', true, true],
    ])
  })
})
