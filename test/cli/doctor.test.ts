import { randomBytes } from 'node:crypto'
import { chmodSync, statSync } from 'node:fs'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openMigrated, type TestDatabase, temporaryFolder } from '../databases.ts'
import { serviceOn, testSecrets } from '../harness.ts'
import { Home } from './run.ts'

const home = new Home()
let database: TestDatabase
let env: Record<string, string>

beforeAll(async () => {
  database = await openMigrated('sqlite')
  // One that the encryption key serves as would be a warning.
  const signing = { AUDIT_SIGNING_KEY: randomBytes(32).toString('base64') }
  await (await serviceOn(database, { env: signing })).close()
  await database.storage.close()
  chmodSync(database.dataDir, 0o700)
  env = { ...testSecrets, ...signing, SVC_DATA_DIR: database.dataDir }
  const backups = await temporaryFolder()
  for (const args of [
    ['backup', '--out', backups],
    ['drill', backups],
  ])
    expect(await home.run(['db', ...args], { env })).toMatchObject({ code: 0, stderr: '' })
})
afterAll(() => home.remove())

const smtp = { SMTP_URL: 'smtp://127.0.0.1:9', MAIL_FROM: 'a@example.com' }

it('exits with 0 when all is well, 1 on warnings and 2 on errors', async () => {
  const well = await home.run(['doctor', '--offline'], { env: { ...env, ...smtp } })
  expect(well).toMatchObject({ code: 0, stderr: '' })
  expect(well.stdout).toMatch(/^✓ data directory .*\n\nAll is well\n$/s)
  const warned = await home.run(['doctor', '--offline', '--json'], { env })
  expect(warned.code).toBe(1)
  const { findings, ...counts } = JSON.parse(warned.stdout)
  expect(counts).toEqual({ errors: 0, warnings: 1, passed: findings.length - 1 })
  expect(findings.find(({ state }: { state: string }) => state === 'warning')).toMatchObject({
    check: 'mail',
  })
  const failed = await home.run(['doctor', '--offline', '-o', 'csv'], { env: { SVC_DATA_DIR: '/nowhere' } })
  expect(failed.code).toBe(2)
  expect(failed.stdout.split('\n')[1]).toMatch(/^error,data directory,/)
})

it('fits a terminal of 80 columns, with color', async () => {
  // Without a spinner, which a slow machine would show between the lines.
  const { code, stdout } = await home.terminal(['doctor', '--offline'], { env: { ...env, CI: '1' } })
  expect(code).toBe(1)
  expect(stdout).toContain('\u001b[33m!\u001b[39m mail')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: removes colors
  const lines = stdout.replace(/\u001b\[[\d;?]*[a-zA-Z]/g, '').split(/\r?\n/)
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80)
  expect(stdout).toMatch(/→ set SMTP_URL and MAIL_FROM/)
})

it('--fix shows what it would do, and does it only with permission', async () => {
  const mode = () => statSync(database.dataDir).mode & 0o777
  chmodSync(database.dataDir, 0o755)
  const asked = await home.run(['doctor', '--offline', '--fix'], { env })
  expect(asked).toMatchObject({ code: 2, stdout: '' })
  expect(asked.stderr).toContain(`chmod 0700 ${database.dataDir}`)
  expect(mode()).toBe(0o755)
  const refused = await home.terminal(['doctor', '--offline', '--fix'], {
    env,
    answers: [['Do this?', 'n\r']],
  })
  expect([refused.code, mode()]).toEqual([2, 0o755])
  const done = await home.run(['doctor', '--offline', '--fix', '--yes'], { env: { ...env, ...smtp } })
  expect([done.code, mode()]).toEqual([0, 0o700])
})
