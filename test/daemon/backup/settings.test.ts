import { join } from 'node:path'
import { pino } from 'pino'
import { expect, it } from 'vitest'
import { parseRate } from '../../../daemon/backup/settings.ts'
import { readConfig } from '../../../daemon/config.ts'
import { serve } from '../../../daemon/serve.ts'
import { systemClock } from '../../../src/core/time.ts'
import { temporaryFolder } from '../../databases.ts'
import { noLimits, testSecrets } from '../../harness.ts'

const S3 = 's3://backups/svc'
const daily = '30 2 * * *'

it('refuses wrong settings with a sentence', async () => {
  const dataDir = await temporaryFolder()
  const read = (env: Record<string, string>) => readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir, ...env })
  const wrong: [env: Record<string, string>, says: RegExp][] = [
    [{ BACKUP_SCHEDULE: 'daily', BACKUP_TARGET: S3 }, /^BACKUP_SCHEDULE must be a cron expression/],
    [{ BACKUP_SCHEDULE: '* * * * * *', BACKUP_TARGET: S3 }, /^BACKUP_SCHEDULE must be a cron expression/],
    [{ BACKUP_SCHEDULE: '0 0 31 2 *', BACKUP_TARGET: S3 }, /^BACKUP_SCHEDULE .*it names no time$/],
    [{ BACKUP_SCHEDULE: daily }, /^BACKUP_SCHEDULE is set, but not BACKUP_TARGET/],
    [{ DRILL_SCHEDULE: daily }, /^DRILL_SCHEDULE is set, but not BACKUP_TARGET/],
    [{ BACKUP_TARGET: 'backups' }, /^BACKUP_TARGET must be the absolute path/],
    [{ BACKUP_TARGET: join(dataDir, 'nowhere') }, /^BACKUP_TARGET: there is no directory/],
    [{ BACKUP_TARGET: 's3://' }, /must be like s3:\/\/bucket\/prefix/],
    [{ BACKUP_TARGET: S3, BACKUP_S3_ACCESS_KEY_ID: 'x' }, /^Set BACKUP_S3_ACCESS_KEY_ID and/],
    [{ BACKUP_TARGET: S3, BACKUP_S3_ENDPOINT: 'x' }, /^BACKUP_S3_ENDPOINT must be an address/],
    [{ BACKUP_KEEP: '0' }, /^BACKUP_KEEP must be a whole number/],
    [{ BACKUP_LIMIT_RATE: 'fast' }, /^BACKUP_LIMIT_RATE must be bytes per second/],
    [{ DRILL_IDENTITY_FILE: join(dataDir, 'nowhere') }, /^DRILL_IDENTITY_FILE .* cannot be read: ENOENT$/],
    [
      { BACKUP_TARGET: S3, DRILL_SCHEDULE: daily, BACKUP_RECIPIENTS: 'age1x' },
      /^DRILL_SCHEDULE needs DRILL_IDENTITY_FILE/,
    ],
  ]
  for (const [env, says] of wrong) expect(() => read(env), JSON.stringify(env)).toThrow(says)
  const { backups } = read({ BACKUP_TARGET: S3, BACKUP_SCHEDULE: daily })
  expect(backups).toMatchObject({ target: S3, schedule: daily, keep: 30, keepDays: 0, limitRate: '20M' })
  const secret = 'AGE-SECRET-KEY-1QQQ'
  const start = serve(read({ ...noLimits, PORT: '0', BACKUP_RECIPIENTS: secret }), systemClock, {
    log: pino({ level: 'silent' }),
  })
  await expect(start).rejects.toThrow(/^BACKUP_RECIPIENTS must be a public key/)
  await expect(start).rejects.not.toThrow(secret)
})

it('reads rates', () => {
  expect(['500', '2K', '20M', '1G'].map((text) => parseRate('--limit-rate', text))).toEqual([
    500,
    2048,
    20 * 2 ** 20,
    2 ** 30,
  ])
  for (const text of ['', '0', '-1', '1.5M', '20MB', '1e3'])
    expect(() => parseRate('--limit-rate', text)).toThrow(/^--limit-rate must be bytes per second/)
})
