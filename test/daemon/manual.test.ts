import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
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
