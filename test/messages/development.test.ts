import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../../daemon/config.ts'
import { outboxMailer, outboxPhoneCodes } from '../../daemon/integrations/development.ts'
import { openIntegrations } from '../../daemon/integrations/open.ts'
import { readOutboxMessages } from '../../daemon/integrations/outbox.ts'
import { welcome } from '../../src/messages/templates.ts'
import { inTurn, openMigrated, temporaryFolder } from '../databases.ts'
import { testClock, testSecrets } from '../harness.ts'

const message = welcome({ to: 'alice@acme.test', name: 'Alice', url: 'https://svc.example.com' })

describe('the development outbox', () => {
  it('stores one file per message that only its owner can read', async () => {
    const dataDir = await temporaryFolder()
    const clock = testClock()
    const mailer = outboxMailer(dataDir, clock)
    await mailer.send(message, 'one')
    clock.forward(1)
    await mailer.send({ ...message, to: 'bob@acme.test' })
    expect(mailer.real).toBe(false)
    const folder = join(dataDir, 'outbox')
    const names = await readdir(folder)
    expect(names).toHaveLength(2)
    for (const name of names) expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600)
    expect((await stat(folder)).mode & 0o777).toBe(0o700)
    expect(JSON.parse(await readFile(join(folder, 'one.json'), 'utf8'))).toEqual({
      id: 'one',
      at: '2026-03-01T12:00:00.000Z',
      ...message,
    })
  })

  it('stores a repeated message only once', async () => {
    const dataDir = await temporaryFolder()
    const mailer = outboxMailer(dataDir, testClock())
    await mailer.send(message, 'one')
    await mailer.send(message, 'one')
    expect(await readOutboxMessages(dataDir)).toHaveLength(1)
  })

  it('is read newest first, without drafts and other files; a missing folder is empty', async () => {
    const dataDir = await temporaryFolder()
    expect(await readOutboxMessages(dataDir)).toEqual([])
    const clock = testClock()
    for (const id of ['b', 'a', 'c']) {
      await outboxMailer(dataDir, clock).send(message, id)
      clock.forward(1)
    }
    await mkdir(join(dataDir, 'outbox'), { recursive: true })
    await writeFile(join(dataDir, 'outbox', '.d.1'), '{"half')
    expect((await readOutboxMessages(dataDir)).map(({ id }) => id)).toEqual(['c', 'a', 'b'])
  })
})

const phone = '+491701234567'

inTurn((open) => {
  describe('phone codes without a verification service', () => {
    const bench = async () => {
      const { storage, dataDir } = await open()
      const clock = testClock()
      const codes = outboxPhoneCodes(dataDir, storage, 'pepper', clock)
      const lastCode = async () => {
        const [sms] = await readOutboxMessages(dataDir)
        expect(sms).toMatchObject({ kind: 'sms-code', to: phone })
        return /\b\d{6}\b/.exec(sms!.text)![0]
      }
      return { storage, dataDir, clock, codes, lastCode }
    }
    const wrong = (code: string) => (code === '000000' ? '000001' : '000000')

    it('are written to the outbox and work once', async () => {
      const { codes, lastCode } = await bench()
      await codes.send(phone)
      const code = await lastCode()
      expect(await codes.check('+491709999999', code)).toBe(false)
      expect(await codes.check(phone, wrong(code))).toBe(false)
      expect(await codes.check(phone, code)).toBe(true)
      expect(await codes.check(phone, code)).toBe(false)
    })

    it('work once also with concurrent checks', async () => {
      const { codes, lastCode } = await bench()
      await codes.send(phone)
      const code = await lastCode()
      const tries = await Promise.all(Array.from({ length: 10 }, () => codes.check(phone, code)))
      expect(tries.filter(Boolean)).toHaveLength(1)
    })

    it('are valid for ten minutes and five attempts', async () => {
      const { codes, lastCode, clock } = await bench()
      await codes.send(phone)
      const first = await lastCode()
      for (let n = 0; n < 5; n += 1) expect(await codes.check(phone, wrong(first))).toBe(false)
      expect(await codes.check(phone, first)).toBe(false)
      clock.forward(1)
      await codes.send(phone)
      clock.forward(599)
      expect(await codes.check(phone, await lastCode())).toBe(true)
      await codes.send(phone)
      const third = await lastCode()
      clock.forward(600)
      expect(await codes.check(phone, third)).toBe(false)
    })

    it('end when a new one is sent', async () => {
      const { codes, lastCode, clock } = await bench()
      await codes.send(phone)
      const first = await lastCode()
      clock.forward(1)
      await codes.send(phone)
      const second = await lastCode()
      if (first !== second) expect(await codes.check(phone, first)).toBe(false)
      expect(await codes.check(phone, second)).toBe(true)
    })

    it('are stored as hashes that depend on the number', async () => {
      const { codes, lastCode, storage } = await bench()
      await codes.send(phone)
      const rows = await storage.read.selectFrom('phone_codes').selectAll().execute()
      expect(JSON.stringify(rows)).not.toContain(await lastCode())
      expect(rows).toMatchObject([
        { phone_number: phone, code_hash: expect.stringMatching(/^[0-9a-f]{64}$/) },
      ])
    })
  })
})

it('in production without an SMS service, phone codes are 501 and nothing is written', async () => {
  const { storage, dataDir } = await openMigrated('sqlite')
  const config = readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir, NODE_ENV: 'production' })
  const log = pino({ level: 'silent' })
  const { phoneCodes } = openIntegrations(config, storage, testClock(), log)
  const refusal = { code: 'sms_not_configured', status: 501, message: 'SMS service not configured' }
  await expect(phoneCodes.send(phone)).rejects.toMatchObject(refusal)
  await expect(phoneCodes.check(phone, '123456')).rejects.toMatchObject(refusal)
  expect(await readOutboxMessages(dataDir)).toEqual([])
})
