import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { readIntegrationSettings } from '../../daemon/integrations/settings.ts'
import { smtpMailer } from '../../daemon/integrations/smtp.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { addSeconds } from '../../src/core/time.ts'
import type { Mailer } from '../../src/messages/ports.ts'
import { queueMail } from '../../src/messages/queue.ts'
import { passwordReset } from '../../src/messages/templates.ts'
import { ServeProcess, until } from '../daemon/process.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { serviceOn, testClock, testSecrets } from '../harness.ts'
import { importsOf, productSources } from '../laws/imports.ts'
import { certificate } from './certificate.ts'
import { headerOf, startMailServer } from './mail-server.ts'

const MAIL_FROM = 'svc <noreply@svc.example.com>'
const url = 'https://svc.example.com/reset-password?token=very-secret-token'
const mailTo = (to: string) => passwordReset({ to, name: 'Zoë', url, minutes: 60 })
const mailerFor = (env: Record<string, string>): Mailer =>
  smtpMailer(readIntegrationSettings({ MAIL_FROM, ...env }).smtp!)

async function certificateFile(): Promise<string> {
  const file = join(await temporaryFolder(), 'ca.pem')
  await writeFile(file, certificate)
  return file
}

it('a mail arrives as text and HTML, with a stable Message-ID', async () => {
  const server = await startMailServer({ plain: true })
  const mailer = mailerFor({ SMTP_URL: `smtp://127.0.0.1:${server.port}` })
  await mailer.send(mailTo('alice@acme.test'), 'mail-1')
  await mailer.send(mailTo('alice@acme.test'), 'mail-1')
  const [mail, again] = server.received
  expect(mail).toMatchObject({ from: 'noreply@svc.example.com', to: ['alice@acme.test'] })
  expect(headerOf(mail!, 'From')).toBe(MAIL_FROM)
  expect(headerOf(mail!, 'To')).toBe('alice@acme.test')
  expect(headerOf(mail!, 'Subject')).toBe('Reset your password')
  expect(headerOf(mail!, 'Message-ID')).toBe('<mail-1@svc.example.com>')
  expect(headerOf(again!, 'Message-ID')).toBe('<mail-1@svc.example.com>')
  expect(headerOf(mail!, 'Auto-Submitted')).toBe('auto-generated')
  expect(headerOf(mail!, 'Content-Type')).toMatch(/^multipart\/alternative/)
  expect(mail!.source).toMatch(
    /Content-Type: text\/plain; charset=utf-8[\s\S]*Content-Type: text\/html; charset=utf-8/,
  )
  expect(mailer.real).toBe(true)
})

it('an address with a comma is one recipient, or none', async () => {
  const server = await startMailServer({ plain: true })
  const mailer = mailerFor({ SMTP_URL: `smtp://127.0.0.1:${server.port}` })
  await mailer.send(mailTo('alice@acme.test, mallory@evil.test'), 'mail-1').catch(() => {})
  expect(server.received.flatMap(({ to }) => to)).not.toContain('mallory@evil.test')
})

it('a recipient that the server refuses is a failure', async () => {
  const server = await startMailServer({ plain: true })
  const mailer = mailerFor({ SMTP_HOST: '127.0.0.1', SMTP_PORT: String(server.port) })
  await expect(mailer.send(mailTo('nobody@acme.test'))).rejects.toMatchObject({
    code: 'EENVELOPE',
    responseCode: 550,
  })
})

it('signs in with its user and password, and fails with a wrong one', async () => {
  const login = { user: 'svc@example.com', pass: 'p@ss:w/rd' }
  const server = await startMailServer({ plain: true, login })
  const at = `127.0.0.1:${server.port}`
  const [user, pass] = [encodeURIComponent(login.user), encodeURIComponent(login.pass)]
  await mailerFor({ SMTP_URL: `smtp://${user}:${pass}@${at}` }).send(mailTo('alice@acme.test'))
  expect(server.received).toMatchObject([{ user: 'svc@example.com' }])
  expect(server.logins).toEqual(['svc@example.com'])
  const wrong = mailerFor({ SMTP_URL: `smtp://${user}:wrong@${at}` })
  await expect(wrong.send(mailTo('alice@acme.test'))).rejects.toMatchObject({ code: 'EAUTH' })
})

it('uses implicit TLS or STARTTLS with a server whose certificate is trusted', async () => {
  const SMTP_CA_FILE = await certificateFile()
  const [direct, upgraded] = [await startMailServer({ secure: true }), await startMailServer()]
  await mailerFor({ SMTP_CA_FILE, SMTP_URL: `smtps://127.0.0.1:${direct.port}` }).send(mailTo('a@acme.test'))
  const started = { SMTP_CA_FILE, SMTP_STARTTLS: 'on', SMTP_URL: `smtp://localhost:${upgraded.port}` }
  await mailerFor(started).send(mailTo('b@acme.test'))
  expect([...direct.received, ...upgraded.received].map(({ secure }) => secure)).toEqual([true, true])
})

it('sends nothing to a server whose certificate is not trusted', async () => {
  const [direct, upgraded] = [await startMailServer({ secure: true }), await startMailServer()]
  const over = mailerFor({ SMTP_URL: `smtps://127.0.0.1:${direct.port}` })
  await expect(over.send(mailTo('a@acme.test'))).rejects.toThrow(/certificate/)
  const started = mailerFor({ SMTP_STARTTLS: 'on', SMTP_URL: `smtp://127.0.0.1:${upgraded.port}` })
  await expect(started.send(mailTo('a@acme.test'))).rejects.toThrow(/certificate/)
  expect([...direct.received, ...upgraded.received]).toEqual([])
})

it('sends nothing in plain text where STARTTLS is required, not even the password', async () => {
  const server = await startMailServer({ plain: true, login: { user: 'svc', pass: 'secret' } })
  const mailer = mailerFor({ SMTP_STARTTLS: 'on', SMTP_URL: `smtp://svc:secret@127.0.0.1:${server.port}` })
  await expect(mailer.send(mailTo('a@acme.test'))).rejects.toMatchObject({ code: 'ETLS' })
  expect(server.received).toEqual([])
  expect(server.logins).toEqual([])
})

it('requires STARTTLS from every server except on this machine, unless configured', () => {
  const startTls = (env: Record<string, string>) =>
    readIntegrationSettings({ MAIL_FROM, ...env }).smtp!.startTls
  expect(startTls({ SMTP_HOST: 'mail.example.com' })).toBe('required')
  expect(startTls({ SMTP_URL: 'smtp://10.0.0.1' })).toBe('required')
  expect(startTls({ SMTP_HOST: '127.evil.example' })).toBe('required')
  expect(startTls({ SMTP_HOST: 'mail.example.com', SMTP_STARTTLS: 'off' })).toBe('never')
  for (const host of ['localhost', '127.0.0.1', '[::1]'])
    expect(startTls({ SMTP_URL: `smtp://${host}` })).toBe('when-offered')
})

it('nodemailer is loaded lazily, so that an idle service does without', () => {
  const loading = productSources().flatMap((source) =>
    importsOf(source).filter(({ target }) => target === 'nodemailer'),
  )
  expect(loading).toEqual([expect.objectContaining({ lazy: true })])
})

it('a mail is delivered when a server that was down is up again', async () => {
  const database = await openMigrated('sqlite')
  const first = await startMailServer({ plain: true })
  await first.close()
  const clock = testClock()
  const env = { SMTP_URL: `smtp://127.0.0.1:${first.port}`, MAIL_FROM }
  const service = await serviceOn(database, { env, clock })
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  await service.storage.write((tx) =>
    queueMail(tx, cipher, mailTo('alice@acme.test'), clock(), addSeconds(clock(), 3600)),
  )
  const queued = () => service.storage.read.selectFrom('mails').selectAll().execute()
  await until(async () => (await queued()).some(({ attempts, lease }) => attempts === 1 && lease === null))
  const second = await startMailServer({ plain: true, port: first.port })
  clock.forward(60)
  await until(() => second.received.length === 1, 10_000)
  await until(async () => (await queued()).length === 0)
})

it('a mail whose sender was killed during delivery is delivered by the next one', async () => {
  const database = await openMigrated('sqlite')
  const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
  const now = new Date().toISOString()
  await database.storage.write((tx) =>
    queueMail(tx, cipher, mailTo('alice@acme.test'), now, addSeconds(now, 3600)),
  )
  const hanging = await startMailServer({ plain: true, silent: true })
  const env = { ...testSecrets, MAIL_FROM, SMTP_URL: `smtp://127.0.0.1:${hanging.port}` }
  const first = new ServeProcess(database, { env })
  const queued = () => database.storage.read.selectFrom('mails').selectAll().execute()
  await until(async () => (await queued())[0]?.lease !== null, 20_000)
  first.kill('SIGKILL')
  await first.ended
  expect(await queued()).toHaveLength(1)
  // Instead of two minutes of waiting.
  await database.storage.write((tx) => tx.updateTable('mails').set({ due_at: now }).execute())
  const server = await startMailServer({ plain: true })
  const second = new ServeProcess(database, {
    env: { ...env, SMTP_URL: `smtp://127.0.0.1:${server.port}`, LOG_LEVEL: 'info' },
  })
  await until(() => server.received.length === 1, 20_000)
  await until(async () => (await queued()).length === 0)
  await second.stop()
  expect(first.stderr + second.stderr).not.toMatch(/very-secret-token|alice@/)
})
