import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../src/api.ts'
import { listening } from '../cli/network.ts'
import { Home, noTerminal } from '../cli/run.ts'
import { temporaryFolder } from '../databases.ts'
import { adminEmail, clientOf, testSecrets } from '../harness.ts'
import { emptyPlace, kinds } from './backup/filled.ts'
import { failedStart, ServeProcess, until } from './process.ts'

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

  const reminded = new ServeProcess({ dataDir }, { env })
  await reminded.listening()
  await reminded.stop()
  expect(reminded.stderr).toContain(`delete the file:\n\n`)
  expect(readFileSync(fileIn(dataDir), 'utf8').trim()).toBe(password)

  rmSync(fileIn(dataDir))
  const again = new ServeProcess({ dataDir }, { env })
  await again.listening()
  await again.stop()
  expect(again.stderr).not.toContain('first-password')
})

describe.each(kinds)('on %s after a start that failed', (kind) => {
  it.each(['with a port that is taken', 'by a kill'])('%s is said by the next one', async (how) => {
    const place = await emptyPlace(kind)
    const taken = createServer()
    onTestFinished(() => void taken.close())
    const PORT = String(await listening(taken))
    if (how === 'by a kill') {
      const service = new ServeProcess(place, { env: { ...env, PORT: '0' } })
      await until(() => existsSync(fileIn(place.dataDir)))
      service.kill('SIGKILL')
      await service.ended
    } else expect((await failedStart(place, { env: { ...env, PORT } })).stderr).toContain('is in use')
    const next = new ServeProcess(place, { env })
    const client = clientOf(await next.listening())
    const password = readFileSync(fileIn(place.dataDir), 'utf8').trim()
    await client.call(api.auth.login, { body: { email: adminEmail, password } })
    await next.stop()
    expect(next.stderr).toContain(`--password-stdin < ${fileIn(place.dataDir)}\n`)
  })
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
