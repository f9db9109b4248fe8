import { describe, expect, it } from 'vitest'
import { createCipher } from '../../src/core/cipher.ts'
import { addSeconds } from '../../src/core/time.ts'
import { type MailFailure, type MailSenderOptions, sendDueMails } from '../../src/messages/jobs.ts'
import type { Mailer, MailMessage } from '../../src/messages/ports.ts'
import { queueMail } from '../../src/messages/queue.ts'
import { passwordReset } from '../../src/messages/templates.ts'
import type { Storage } from '../../src/storage/open.ts'
import { until } from '../daemon/process.ts'
import { inTurn } from '../databases.ts'
import { serviceOn, startService, type TestClock, testClock, testSecrets } from '../harness.ts'

const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
const url = 'https://svc.example.com/reset-password?token=very-secret-token'
const mailTo = (to: string): MailMessage => passwordReset({ to, name: 'Alice', url, minutes: 60 })

/** A mailer that keeps its messages, or fails a given number of times. */
class Postbox implements Mailer {
  readonly real = true
  readonly sent: { mail: MailMessage; id: string | undefined }[] = []
  failures = 0

  async send(mail: MailMessage, id?: string): Promise<void> {
    if (this.failures > 0) {
      this.failures -= 1
      throw Object.assign(new Error(`550 no such user ${mail.to} ${url}`), {
        code: 'EENVELOPE',
        responseCode: 550,
      })
    }
    this.sent.push({ mail, id })
  }
}

type Bench = {
  storage: Storage
  clock: TestClock
  postbox: Postbox
  failures: MailFailure[]
  delivery: MailSenderOptions
  queue(to: string, seconds?: number): Promise<void>
  run(): Promise<boolean>
}

function benchOn(storage: Storage): Bench {
  const [clock, postbox, failures] = [testClock(), new Postbox(), [] as MailFailure[]]
  const delivery = {
    storage,
    cipher,
    mailer: postbox,
    clock,
    onFailure: (one: MailFailure) => void failures.push(one),
  }
  return {
    storage,
    clock,
    postbox,
    failures,
    delivery,
    queue: (to, seconds = 3600) =>
      storage.write((tx) => queueMail(tx, cipher, mailTo(to), clock(), addSeconds(clock(), seconds))),
    run: () => sendDueMails(delivery),
  }
}

const queued = (storage: Storage) => storage.read.selectFrom('mails').selectAll().orderBy('id').execute()

inTurn((open) => {
  describe('a queued mail', () => {
    const bench = async () => benchOn((await open()).storage)

    it('is sent unchanged, once, and leaves no row', async () => {
      const { queue, run, postbox, storage } = await bench()
      await queue('alice@acme.test')
      const [row] = await queued(storage)
      await run()
      await run()
      expect(postbox.sent).toEqual([{ mail: mailTo('alice@acme.test'), id: row!.id }])
      expect(await queued(storage)).toEqual([])
    })

    it('is encrypted: neither its link nor its recipient is readable in the database', async () => {
      const { queue, storage } = await bench()
      await queue('alice@acme.test')
      const text = JSON.stringify(await queued(storage))
      expect(text).not.toMatch(/alice|very-secret-token/)
      expect(text).toContain('password-reset')
    })

    it('is absent when its transaction was rolled back', async () => {
      const { storage, clock, run, postbox } = await bench()
      const change = storage.write(async (tx) => {
        await queueMail(tx, cipher, mailTo('alice@acme.test'), clock(), addSeconds(clock(), 60))
        throw new Error('changed my mind')
      })
      await expect(change).rejects.toThrow('changed my mind')
      await run()
      expect(await queued(storage)).toEqual([])
      expect(postbox.sent).toEqual([])
    })

    it('is retried after 1, 2, 4 … minutes, at most an hour', async () => {
      const { queue, run, postbox, clock, failures, storage } = await bench()
      postbox.failures = 8
      await queue('alice@acme.test', 86_400)
      const [row] = await queued(storage)
      const waits: number[] = []
      for (let n = 0; n < 8; n += 1) {
        await run()
        const [waiting] = await queued(storage)
        const wait = (Date.parse(waiting!.due_at) - Date.parse(clock())) / 1000
        waits.push(wait)
        clock.forward(wait - 1)
        await run()
        expect(failures).toHaveLength(n + 1)
        clock.forward(1)
      }
      expect(waits).toEqual([60, 120, 240, 480, 960, 1920, 3600, 3600])
      await run()
      expect(postbox.sent.map(({ id }) => id)).toEqual([row!.id])
      expect(await queued(storage)).toEqual([])
    })

    it('is given up when it has expired, before an attempt or after one', async () => {
      const { queue, run, postbox, clock, failures, storage } = await bench()
      postbox.failures = 1
      await queue('alice@acme.test', 30)
      await run()
      await queue('bob@acme.test', 30)
      clock.forward(31)
      await run()
      expect(await queued(storage)).toEqual([])
      expect(postbox.sent).toEqual([])
      expect(failures.map(({ reason, givenUp }) => [reason, givenUp])).toEqual([
        ['EENVELOPE 550', true],
        ['expired', true],
      ])
    })

    it('that fails is reported without its content and recipient', async () => {
      const { queue, run, postbox, failures } = await bench()
      postbox.failures = 1
      await queue('alice@acme.test')
      await run()
      expect(failures).toEqual([
        {
          mail: expect.any(String),
          kind: 'password-reset',
          attempt: 1,
          reason: 'EENVELOPE 550',
          givenUp: false,
        },
      ])
      expect(JSON.stringify(failures)).not.toMatch(/alice|token/)
    })

    it('that cannot be decrypted blocks no other', async () => {
      const { queue, run, postbox, storage, failures, clock } = await bench()
      const other = createCipher(['a key that is gone'])
      await storage.write((tx) =>
        queueMail(tx, other, mailTo('bob@acme.test'), clock(), addSeconds(clock(), 60)),
      )
      await queue('alice@acme.test')
      await run()
      expect(postbox.sent.map(({ mail }) => mail.to)).toEqual(['alice@acme.test'])
      expect(failures).toMatchObject([{ reason: 'encrypted with another key' }])
    })

    it('whose content was moved to another row cannot be decrypted', async () => {
      const { queue, run, postbox, storage, failures } = await bench()
      await queue('alice@acme.test')
      await queue('bob@acme.test')
      const [alice, bob] = await queued(storage)
      await storage.write((tx) =>
        tx.updateTable('mails').set({ content: alice!.content }).where('id', '=', bob!.id).execute(),
      )
      await run()
      expect(postbox.sent.map(({ mail }) => mail.to)).toEqual(['alice@acme.test'])
      expect(failures).toMatchObject([{ mail: bob!.id, reason: 'encrypted with another key' }])
    })

    it('is leased by one sender at a time, and by the next when that one died', async () => {
      const { queue, run, postbox, clock, storage, delivery } = await bench()
      await queue('alice@acme.test')
      const dead: Mailer = { real: true, send: () => new Promise(() => {}) }
      void sendDueMails({ ...delivery, mailer: dead })
      await until(async () => (await queued(storage))[0]!.lease !== null)
      clock.forward(119)
      await run()
      expect(postbox.sent).toEqual([])
      clock.forward(1)
      await run()
      expect(postbox.sent).toHaveLength(1)
      expect(await queued(storage)).toEqual([])
    })

    it('that was lost to another sender is not taken back', async () => {
      const { queue, run, postbox, clock, storage, delivery } = await bench()
      await queue('alice@acme.test')
      let fail = (_: Error): void => {}
      const slow: Mailer = { real: true, send: () => new Promise((_, reject) => (fail = reject)) }
      const late = sendDueMails({ ...delivery, mailer: slow })
      await until(async () => (await queued(storage))[0]!.lease !== null)
      clock.forward(120)
      postbox.failures = 1
      await run()
      const [before] = await queued(storage)
      fail(new Error('too late'))
      await late
      expect(await queued(storage)).toEqual([before])
    })

    it('is sent once by concurrent senders', async () => {
      const { queue, run, postbox } = await bench()
      const names = Array.from({ length: 40 }, (_, n) => `user${n}@acme.test`)
      for (const name of names) await queue(name)
      for (let n = 0; n < 4; n += 1) await Promise.all([run(), run(), run()])
      expect(postbox.sent.map(({ mail }) => mail.to).sort()).toEqual([...names].sort())
    })
  })

  describe('the service', () => {
    const queueOn = (storage: Storage, to: string) => {
      const now = new Date().toISOString()
      return storage.write((tx) => queueMail(tx, cipher, mailTo(to), now, addSeconds(now, 3600)))
    }

    it('sends committed mails within a moment, and mails that were queued before it started', async () => {
      const database = await open()
      const postbox = new Postbox()
      await queueOn(database.storage, 'before@acme.test')
      const service = await serviceOn(database, { outside: { mailer: postbox } })
      await until(() => postbox.sent.length === 1)
      for (let n = 0; n < 25; n += 1) await queueOn(service.storage, `user${n}@acme.test`)
      await until(() => postbox.sent.length === 26, 3000)
      await until(async () => (await queued(service.storage)).length === 0)
      expect(new Set(postbox.sent.map(({ mail }) => mail.to)).size).toBe(26)
    })

    it('finishes the mails in progress when it stops, and starts no other', async () => {
      const database = await open()
      const started: string[] = []
      const slow: Mailer = {
        real: true,
        send: async ({ to }) => {
          started.push(to)
          await new Promise((resolve) => setTimeout(resolve, 500))
        },
      }
      const service = await serviceOn(database, { outside: { mailer: slow } })
      await queueOn(service.storage, 'alice@acme.test')
      await until(() => started.length === 1)
      await queueOn(service.storage, 'bob@acme.test')
      await service.close()
      expect(started).toEqual(['alice@acme.test'])
      const left = await queued(database.storage)
      expect(left.map(({ lease, attempts }) => ({ lease, attempts }))).toEqual([{ lease: null, attempts: 0 }])
    })

    it('sends each mail once, also with another service on the same database', async () => {
      const postbox = new Postbox()
      const first = await startService(open, { outside: { mailer: postbox } })
      await serviceOn(first, { outside: { mailer: postbox } })
      const names = Array.from({ length: 60 }, (_, n) => `user${n}@acme.test`)
      await Promise.all(names.map((name) => queueOn(first.storage, name)))
      await until(async () => (await queued(first.storage)).length === 0, 10_000)
      expect(postbox.sent.map(({ mail }) => mail.to).sort()).toEqual([...names].sort())
    })
  })
})
