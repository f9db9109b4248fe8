import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { createCipher } from '../../src/core/cipher.ts'
import { checkSignatures } from '../../src/core/webhook-signature.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { serviceOn, testClock } from '../harness.ts'
import { newEntries } from '../laws/audited.ts'
import { reaching, receiver } from './receiver.ts'
import { secret } from './signed.ts'
import { handOn, stage } from './webhook-fixture.ts'

const lower = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))

describe.skipIf(!hasOpenssl)('the relay of a webhook', () => {
  const certificate = testCertificate()
  onEveryDatabase((kind, open) => {
    const start = async (answer?: Parameters<typeof receiver>[1]) => {
      const clock = testClock()
      const fixture = await stage(open, certificate, { clock })
      const to = await receiver(certificate, answer)
      const { client } = fixture
      const readAt = (through: typeof client) => (id: string, after?: number) =>
        through.call(api.webhookRelay.read, { params: { id }, query: { after } })
      return { ...fixture, clock, to, readAt, read: readAt(client) }
    }
    const paused = { status: 'paused' as const }

    it('has a signed copy of each delivery from now on, and what is sent stays as it is', async () => {
      const { hook, raise, untilAll, read, to, clock } = await start()
      const own = [{ key: 'Authorization', value: 'Bearer of the receiver' }]
      const id = await hook(`${to.url}/in`, { secret, headers: own })
      await raise()
      const [before] = await untilAll(id, 1, ({ status }) => status === 'delivered')
      const { data: none, nextAfter } = await read(id)
      expect([none, nextAfter]).toEqual([[], before!.sequence])
      await raise(2)
      await untilAll(id, 3, ({ status, attempt }) => status === 'delivered' && attempt === 1)
      const { data, ...rest } = await read(id, nextAfter)
      expect([data.length, rest]).toEqual([2, { nextAfter: 3 }])
      for (const { sequence, headers, body } of data) {
        const sent = to.got.find((one) => one.headers['x-service-sequence'] === String(sequence))!
        expect(body).toBe(sent.body)
        // The clock stands still, so that the signatures are the same too.
        const { host: _, connection: __, authorization, 'content-length': ___, ...same } = sent.headers
        expect(authorization).toBe('Bearer of the receiver')
        expect(same).toMatchObject(lower(headers))
        expect(checkSignatures(secret, lower(headers), body)).toEqual({
          native: 'valid',
          standard: 'valid',
          signedAt: Date.parse(clock()),
        })
      }
      expect(await read(id, 3)).toEqual({ data: [], nextAfter: 3 })
      expect(to.got).toHaveLength(3)
    })

    it('goes on while the webhook is paused, in replies of twenty', async () => {
      const { hook, raise, untilAll, client, read, to } = await start()
      const id = await hook(to.url)
      await client.call(api.webhooks.update, { params: { id }, body: paused })
      await raise(23)
      const kept = await untilAll(
        id,
        23,
        ({ status, nextAttemptAt }) => status === 'pending' && !nextAttemptAt,
      )
      expect(await read(id)).toEqual({ data: [], nextAfter: 23 })
      const first = await read(id, 0)
      const second = await read(id, first.nextAfter)
      expect([first.data.length, second.data.length, second.nextAfter]).toEqual([20, 3, 23])
      const ids = [...first.data, ...second.data].map(({ headers }) => headers['X-Service-Delivery-Id'])
      expect(ids).toEqual(kept.map((one) => one.id))
      expect(to.got).toEqual([])
    })

    it('signs when it is read: with both secrets for a day, and with none if there is none', async () => {
      const { hook, raise, untilAll, client, read, to, clock } = await start()
      const id = await hook(to.url, { secret })
      await client.call(api.webhooks.update, { params: { id }, body: paused })
      await raise()
      await untilAll(id, 1, ({ status }) => status === 'pending')
      const later = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD'
      await client.call(api.webhooks.rotateSecret, { params: { id }, body: { secret: later } })
      const signed = async () => {
        const { headers, body } = (await read(id, 0)).data[0]!
        return [secret, later].map((one) => checkSignatures(one, lower(headers), body))
      }
      clock.forward(60)
      const both = { native: 'valid', standard: 'valid', signedAt: Date.parse(clock()) }
      expect(await signed()).toEqual([both, both])
      clock.forward(86_400)
      expect(await signed()).toMatchObject([{ native: 'invalid', standard: 'invalid' }, { native: 'valid' }])
      await client.call(api.webhooks.update, { params: { id }, body: { secret: null } })
      expect(await signed()).toMatchObject([{ native: 'absent' }, { standard: 'absent' }])
    })

    // One process has an SQLite database.
    it.runIf(kind === 'postgres')('is the same at every process', async () => {
      const { hook, raise, untilAll, service, token, read, readAt, to } = await start()
      const id = await hook(to.url)
      const there = readAt((await serviceOn(service, { env: reaching(certificate) })).client(token))
      await raise()
      await untilAll(id, 1, ({ status }) => status === 'delivered')
      const [here, other] = [await read(id, 0), await there(id, 0)]
      const content = ({ data }: typeof here) =>
        data.map(({ sequence, headers, body }) => [sequence, headers['X-Service-Delivery-Id'], body])
      expect(content(other)).toEqual(content(here))
      expect(content(here)).toHaveLength(1)
    })

    it('is audited once an hour, not with each reply', async () => {
      const { hook, service, read, to, clock } = await start()
      const id = await hook(to.url, { name: 'Tickets' })
      const news = await newEntries(service)
      await read(id)
      await read(id, 0)
      await read(id, 7)
      expect(await news()).toMatchObject([
        { action: 'webhook.relay', resourceId: id, resourceName: 'Tickets', result: 'success' },
      ])
      clock.forward(3601)
      await read(id, 7)
      expect(await news()).toMatchObject([{ action: 'webhook.relay' }])
    })

    it('has only the deliveries of that webhook', async () => {
      const { hook, raise, untilAll, read, client, to } = await start()
      const id = await hook(to.url)
      const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'B', slug: 'b' } })
      const body = { partnerId, name: 'Garage', slug: 'garage' }
      const other = handOn(client, (await client.call(api.orgs.create, { body })).id)
      const theirs = await other.hook(to.url)
      await other.raise(2)
      await raise()
      await untilAll(id, 1, ({ status }) => status === 'delivered')
      await other.untilAll(theirs, 2, ({ status }) => status === 'delivered')
      expect((await read(id, 0)).data).toHaveLength(1)
      expect((await read(theirs, 0)).data).toHaveLength(2)
    })

    it('answers 409 where no key decrypts the secret', async () => {
      const { hook, service, read, to } = await start()
      const id = await hook(to.url, { secret })
      const strange = createCipher([Buffer.alloc(32, 7).toString('base64')]).encrypt(
        secret,
        `webhooks.secret.${id}`,
      )
      await service.storage.write((tx) =>
        tx.updateTable('webhooks').set({ secret: strange }).where('id', '=', id).execute(),
      )
      await expect(read(id, 0)).rejects.toMatchObject({ status: 409, code: 'conflict' })
    })
  })
})
