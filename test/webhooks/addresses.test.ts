import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Resolve } from '../../daemon/integrations/guard.ts'
import { guardedClient } from '../../daemon/integrations/guarded-client.ts'
import { api } from '../../src/api.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { send } from '../daemon/request.ts'
import { names, unsafeUrls } from '../daemon/unsafe-urls.ts'
import { onEveryDatabase } from '../databases.ts'
import { receiver } from './receiver.ts'
import { healthy, stage } from './webhook-fixture.ts'

/** The addresses of a name, per lookup; the last entry stays. null: the lookup never ends. */
type Answers = Record<string, readonly (readonly string[] | null)[]>

const faults = {
  invalid: 'Invalid URL format',
  plain: 'Webhook URL must use HTTPS',
  local: 'Webhook URL cannot target localhost or local network hostnames',
  inside: 'Webhook URL cannot target private, loopback, or link-local addresses',
  nowhere: 'Webhook URL hostname could not be resolved',
}

describe.skipIf(!hasOpenssl)('the address of a webhook', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    const start = async (answers: Answers, allowed = ['127.0.0.0/8']) => {
      const asked: string[] = []
      const unanswered: (() => void)[] = []
      const resolve: Resolve = (hostname, _, done) => {
        const turns = answers[hostname.replace(/\.$/, '')] ?? [[]]
        const found = turns[Math.min(asked.filter((one) => one === hostname).length, turns.length - 1)]
        asked.push(hostname)
        const missing = Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), { code: 'ENOTFOUND' })
        if (!found) return void unanswered.push(() => done(missing, []))
        if (found.length === 0) return done(missing, [])
        done(
          null,
          found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
        )
      }
      const outbound = guardedClient({ allowed, ca: certificate.pair().cert.toString() }, resolve)
      const fixture = await stage(open, certificate, { outside: { outbound } })
      onTestFinished(() => {
        for (const end of unanswered) end()
      })
      const to = await receiver(certificate)
      const named = (name: string) => to.url.replace('127.0.0.1', name)
      return { ...fixture, asked, answers, to, named }
    }

    /** The addresses that this process connects to, except for its own servers. */
    const connections = () => {
      const made: string[] = []
      const note = (message: unknown) =>
        (message as { socket: Socket }).socket.on('connectionAttempt', (address) => made.push(address))
      subscribe('net.client.socket', note)
      onTestFinished(() => void unsubscribe('net.client.socket', note))
      // A socket in the file system is that of the database.
      return () =>
        made.filter((address) => !['127.0.0.1', '::1'].includes(address) && !address.startsWith('/'))
    }

    const unsafe = { status: 'failed', attempt: 1, nextAttemptAt: null, failureClass: 'blocked' }

    it('is looked up again for each delivery: an unsafe address fails it at once, unsent', async () => {
      const made = connections()
      const then = {
        'turned.test': ['10.0.0.1'],
        'half.test': ['127.0.0.1', '10.0.0.1'],
        'half-six.test': ['127.0.0.1', 'fd00::1'],
        'mapped.test': ['::ffff:10.0.0.1'],
        'metadata.test': ['169.254.169.254'],
      }
      const turns = Object.entries(then).map(([name, found]) => [name, [['127.0.0.1'], found]])
      const { hook, raise, untilAll, to, named } = await start(Object.fromEntries(turns))
      const hooks = await Promise.all(Object.keys(then).map((name) => hook(named(name))))
      await raise(2)
      for (const [n, name] of Object.keys(then).entries()) {
        for (const one of await untilAll(hooks[n]!, 2, ({ status }) => status !== 'pending')) {
          expect(one).toMatchObject(unsafe)
          expect(one.errorMessage).toContain(`Unsafe webhook URL: ${name} (`)
          expect(one.errorMessage).toMatch(
            /\) is refused: it is not public and OUTBOUND_ALLOW_CIDRS does not/,
          )
          expect(one.hint).toMatch(/OUTBOUND_ALLOW_CIDRS opens private ranges$/)
        }
      }
      expect([to.got.length, to.connections, made()]).toEqual([0, 0, []])
    })

    it('is checked even where a connection to an earlier address is still open', async () => {
      const made = connections()
      const { hook, raise, untilAll, to, named, answers } = await start({ 'svc.test': [['127.0.0.1']] })
      const id = await hook(named('svc.test'))
      await raise()
      await untilAll(id, 1, ({ status }) => status === 'delivered')
      answers['svc.test'] = [['10.0.0.1']]
      await raise()
      const [, second] = await untilAll(id, 2, ({ attempt }) => attempt === 1)
      expect(second).toMatchObject(unsafe)
      expect([to.got.length, made()]).toEqual([1, []])
    })

    it('is where the connection goes, even if the name resolves differently a moment later', async () => {
      const made = connections()
      const turns = [['127.0.0.1'], ['127.0.0.1'], ['10.0.0.1']]
      const { hook, raise, untilAll, to, named, asked } = await start({ 'svc.test': turns })
      const id = await hook(named('svc.test'))
      await raise()
      await untilAll(id, 1, ({ status }) => status === 'delivered')
      expect([to.got.length, asked.length, made()]).toEqual([1, 2, []])
    })

    it('may stop existing: the delivery is tried again', async () => {
      const { hook, raise, untilAll, named } = await start({ 'svc.test': [['127.0.0.1'], []] })
      const id = await hook(named('svc.test'))
      await raise()
      const [one] = await untilAll(id, 1, ({ attempt }) => attempt > 0)
      expect(one).toMatchObject({ status: 'retrying', failureClass: 'dns' })
      expect(one!.hint).toMatch(/^the name has no address: /)
    })

    it('may be a name whose lookup never ends, which delays no other webhook', async () => {
      const { hook, raise, untilAll, to, named } = await start({
        'silent.test': [['127.0.0.1'], null],
        'svc.test': [['127.0.0.1']],
      })
      const silent = await hook(named('silent.test'))
      await raise(5)
      const id = await hook(named('svc.test'), { events: ['user.login'] })
      await raise(5, 'user.login')
      await untilAll(id, 5, ({ status }) => status === 'delivered')
      await untilAll(silent, 5, ({ attempt }) => attempt === 0)
      expect(to.got).toHaveLength(5)
    })

    it('is never reached by a redirect, which is not followed', async () => {
      const made = connections()
      const fixture = await start({ 'svc.test': [['127.0.0.1']] })
      const well = await healthy(certificate, fixture)
      const other = await receiver(certificate)
      for (const location of ['https://10.0.0.1/', other.url]) {
        fixture.to.answer = () => ({ status: 307, headers: { location } })
        const id = await fixture.hook(
          fixture.named('svc.test'),
          { events: ['patch.failed'] },
          { maxRetries: 0 },
        )
        await fixture.raise(1, 'patch.failed')
        await fixture.untilAll(id, 1, (one) => one.failureClass === 'redirect')
      }
      await well.beats()
      expect([other.got.length, made()]).toEqual([0, []])
    })

    it(`is refused in ${unsafeUrls.length} spellings, each with the message of its class`, async () => {
      const made = connections()
      const all = { ...names, 'outside.example.com': ['93.184.215.14'] }
      const answers = Object.fromEntries(Object.entries(all).map(([name, found]) => [name, [found]]))
      const { service, token, orgId } = await start(answers, [])
      const blocked = (...found: string[]) =>
        `Webhook URL resolves to blocked address space: ${found.join(', ')}`
      const text = (url: string): string => {
        if (!URL.canParse(url)) return faults.invalid
        const { protocol, hostname } = new URL(url)
        if (protocol !== 'https:') return faults.plain
        const host = hostname.replace(/\.$/, '')
        if (/(^|\.)localhost$|\.local$/.test(host)) return faults.local
        if (/^[\d.]+$|^\[/.test(host)) return faults.inside
        if (host === 'half.example.com') return blocked('10.0.0.1')
        if (host === 'half-six.example.com') return blocked('fd00::1')
        return names[host]!.length === 0 ? faults.nowhere : blocked(...names[host]!)
      }
      const seen = new Set<string>()
      for (const url of unsafeUrls) {
        const body = { orgId, name: 'a', url, events: ['*'] }
        const reply = await send(service.url, 'POST', '/api/v1/webhooks', { token, body })
        const message = text(url)
        seen.add(message.replace(/: .*/, ''))
        expect({ url, status: reply.status, ...reply.body }).toMatchObject({
          url,
          status: 400,
          code: 'invalid_request',
          error: 'Invalid webhook URL',
          details: [{ path: 'body.url', message }],
        })
      }
      expect(seen.size).toBe(6)
      expect(made()).toEqual([])
      expect(await service.storage.read.selectFrom('webhooks').select('id').execute()).toEqual([])
    })

    it('is refused as well when a change makes it unsafe', async () => {
      const { client, hook, named } = await start({ 'svc.test': [['127.0.0.1']], 'in.test': [['10.0.0.1']] })
      const id = await hook(named('svc.test'))
      const to = (url: string) => client.call(api.webhooks.update, { params: { id }, body: { url } })
      for (const [url, message] of [
        ['https://10.0.0.1/', faults.inside],
        ['https://in.test/', 'Webhook URL resolves to blocked address space: 10.0.0.1'],
        ['https://nobody.test/', faults.nowhere],
        ['https://me:secret@svc.test/', /must not contain a user name or password/],
      ] as const) {
        await expect(to(url)).rejects.toMatchObject({
          status: 400,
          message: 'Invalid webhook URL',
          details: [{ message: expect.stringMatching(message) }],
        })
      }
      expect((await client.call(api.webhooks.show, { params: { id } })).url).toBe(`${named('svc.test')}`)
    })
  })
})
