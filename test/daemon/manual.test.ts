import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { expect, test } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { archiveTargets, smsProviders } from '../../daemon/integrations/providers.ts'
import { helpPages } from '../../src/cli/help-pages.ts'
import { defaultLimits } from '../../src/core/limits.ts'
import { defaultQuotas } from '../../src/core/quotas.ts'
import { temporaryFolder } from '../databases.ts'
import { testSecrets } from '../harness.ts'

const page = readFileSync(new URL('../../man/svc-serve.8.md', import.meta.url), 'utf8')

/** Every name that reading the configuration looks up, where only these are set. */
async function namesRead(env: Record<string, string>): Promise<string[]> {
  const names = new Set<string>()
  const watched = new Proxy({ ...env, SVC_DATA_DIR: await temporaryFolder() } as Record<string, string>, {
    get(target, name: string) {
      names.add(name)
      return target[name]
    },
  })
  readConfig(watched)
  return [...names]
}

test('every setting the service reads is in man/svc-serve.8', async () => {
  const environments: Record<string, string>[] = [
    {},
    testSecrets,
    { SMTP_HOST: 'mail.example.com', SMTP_USER: 'svc', SMTP_PASSWORD: 'x', MAIL_FROM: 'svc@example.com' },
    { AUDIT_ARCHIVE_S3_BUCKET: 'archive', AGENT_BINARY_S3_BUCKET: 'binaries', BINARY_SOURCE: 'local' },
    { BACKUP_TARGET: 's3://backups/svc', BACKUP_SCHEDULE: '30 2 * * *', DRILL_SCHEDULE: '30 4 * * 0' },
  ]
  const names = new Set((await Promise.all(environments.map(namesRead))).flat())
  const isDocumented = (name: string): boolean => {
    const own = name.replace(/_FILE$/, '')
    if (name.startsWith('RATE_LIMIT_')) return page.includes(`\n| ${name.slice(11)} | `)
    if (name.startsWith('QUOTA_')) return page.includes(`\n| ${name.slice(6)} | `)
    const part = /^(AUDIT_ARCHIVE_S3|AGENT_BINARY_S3)(_\w+)$/.exec(own)
    if (part) return page.includes(`${part[1]}_BUCKET`) && page.includes(part[2]!)
    return new RegExp(`\\b(${name}|${own})\\b`).test(page)
  }
  expect(names.size).toBeGreaterThan(80)
  expect([...names].filter((name) => !isDocumented(name) && name !== 'AWS_REGION')).toEqual([])
})

/** Settings with a default in words, which depends on others. */
const inWords = ['PUBLIC_URL', 'CORS_ALLOWED_ORIGINS', 'SAML_SP_ENTITY_ID', 'SVC_ADMIN_PASSWORD']

/** Of each setting in the tables the documented default. */
function documentedDefaults(): [name: string, value: string][] {
  const tables = page.split('\n| Setting | Default | Meaning |\n').slice(1)
  return tables.flatMap((table) => {
    const rows = table.slice(0, table.indexOf('\n\n')).split('\n').slice(1)
    return rows.flatMap((row): [string, string][] => {
      const [, names = '', defaults = ''] = row.split('|').map((cell) => cell.trim())
      if (defaults === '') return []
      const all = names.split(', ')
      // The second one may be a form of the first, or have no default.
      const values = all.length === 1 ? [defaults] : defaults.split(', ')
      return values.map((value, at) => [all[at]!, value])
    })
  })
}

/** Another value than the default. A refused one shows as well that the setting is read. */
const otherThan = (value: string): string => {
  if (value === 'true' || value === 'false') return value === 'true' ? 'false' : 'true'
  return /^\d+$/.test(value) ? `${Number(value) + 1}` : 'another'
}

test('man/svc-serve.8 documents the default of each setting', async () => {
  const SVC_DATA_DIR = await temporaryFolder()
  // Where settings count that depend on others.
  const context: Record<string, string> = {
    ...testSecrets,
    SVC_DATA_DIR,
    TRUST_PROXY_HEADERS: 'true',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318',
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    BACKUP_TARGET: SVC_DATA_DIR,
    BACKUP_SCHEDULE: '30 2 * * *',
  }
  const configOf = (name: string, value: string | undefined) => {
    const env = Object.fromEntries(Object.entries({ ...context, [name]: value }).filter(([, one]) => one))
    const { backups, ...config } = readConfig(env as Record<string, string>)
    return { ...config, backups: { ...backups, env: undefined } }
  }
  const defaults = documentedDefaults().filter(([name]) => !inWords.includes(name))
  expect(defaults.length).toBeGreaterThan(60)
  for (const [name, value] of defaults) {
    expect([name, configOf(name, value)]).toEqual([name, configOf(name, undefined)])
    const isRead = () => {
      try {
        return !isDeepStrictEqual(configOf(name, otherThan(value)), configOf(name, undefined))
      } catch {
        return true
      }
    }
    expect([name, isRead()]).toEqual([name, true])
  }
})

test('what svc doctor says to set for a private authority is in the manual, the help and the guide', () => {
  const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
  const [named] = /NODE_\w+/.exec(read('daemon/doctor/endpoint.ts'))!
  expect(page).toContain(`\n| ${named} | `)
  expect(helpPages.environment).toContain(`\n  ${named} `)
  for (const guide of ['proxy', 'troubleshooting'])
    expect(read(`docs/operations/${guide}.md`)).toContain(named)
})

test('svc help environment names the settings of every provider', () => {
  const providers = [...smsProviders, ...archiveTargets]
  for (const { prefix } of providers) expect(helpPages.environment).toContain(`\n  ${prefix}_`)
})

test('man/svc-serve.8 documents the default rate limits, and who counts each', () => {
  const documented = (title: string) => {
    const [, section = ''] = page.split(`\n### ${title}\n`)
    return [...section.split('\n##')[0]!.matchAll(/^\| ([A-Z_]+) \| (\d+\/\d+) \|/gm)].map(
      ([, name, value]) => `${name} ${value}`,
    )
  }
  const limits = (isCounted: (counted: string) => boolean) =>
    Object.entries(defaultLimits).flatMap(([name, { count, seconds, counted }]) =>
      isCounted(counted) ? [`${name} ${count}/${seconds}`] : [],
    )
  const together = documented('Counted by all replicas together')
  expect(together.sort()).toEqual(limits((counted) => counted !== 'process').sort())
  const apart = documented('Counted by each process')
  expect(apart.sort()).toEqual(limits((counted) => counted === 'process').sort())
})

test('man/svc-serve.8 documents the default quotas', () => {
  const [, table = ''] = page.split('\n## Quotas\n')
  const said = [...table.split('\n## ')[0]!.matchAll(/^\| ([A-Z_]+) \| (\d+) \|/gm)]
  expect(Object.fromEntries(said.map(([, name, count]) => [name, Number(count)]))).toEqual(defaultQuotas)
})
