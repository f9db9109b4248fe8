import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { Home, noTerminal } from '../cli/run.ts'
import { temporaryFolder } from '../databases.ts'
import { adminEmail, clientOf, testSecrets } from '../harness.ts'
import { ServeProcess } from './process.ts'

const env = { ...testSecrets, SVC_ADMIN_EMAIL: adminEmail }
const fileIn = (dataDir: string) => join(dataDir, 'first-password')

it('without a terminal goes to a file of this user alone, and not into the journal', async () => {
  const dataDir = await temporaryFolder()
  writeFileSync(fileIn(dataDir), 'of an earlier database', { mode: 0o644 })
  const service = new ServeProcess({ dataDir }, { env })
  const client = clientOf(await service.listening())
  const password = readFileSync(fileIn(dataDir), 'utf8').trim()
  expect((statSync(fileIn(dataDir)).mode & 0o777).toString(8)).toBe('600')
  await client.call(api.auth.login, { body: { email: adminEmail, password } })
  await service.stop()
  expect(service.stderr).toContain(`login --email ${adminEmail}`)
  expect(service.stderr).toContain(`--password-stdin < ${fileIn(dataDir)}\n`)
  expect(service.stdout + service.stderr).not.toContain(password)

  writeFileSync(fileIn(dataDir), 'mine')
  const again = new ServeProcess({ dataDir }, { env })
  await again.listening()
  await again.stop()
  expect(again.stderr).not.toContain('first-password')
  expect(readFileSync(fileIn(dataDir), 'utf8')).toBe('mine')
})

it.skipIf(noTerminal)('on a terminal is displayed, and written to no file', async () => {
  const dataDir = await temporaryFolder()
  const home = new Home({ ...env, SVC_DATA_DIR: dataDir, PORT: '0' })
  onTestFinished(() => home.remove())
  const { stdout, code } = await home.terminal(['serve'], { answers: [['Data: ', '\u0003']] })
  expect(stdout).toMatch(/displayed only once:\s+e-mail {4}\S+\s+password {2}\S{12,}\s/)
  expect(code).toBe(0)
  expect(() => statSync(fileIn(dataDir))).toThrow('ENOENT')
})
