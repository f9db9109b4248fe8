import { describe, expect, it, onTestFinished } from 'vitest'
import type { FailureClass } from '../../src/webhooks/deliveries/contract.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { endless, raw, rawTcp } from './misbehaving.ts'
import { type Answer, receiver } from './receiver.ts'
import { healthy, stage } from './webhook-fixture.ts'

type Case = [
  does: string,
  failureClass: FailureClass,
  errorMessage: string | RegExp,
  hint: RegExp,
  open: () => Promise<string>,
]

describe.skipIf(!hasOpenssl)('a receiver that misbehaves', () => {
  const certificate = testCertificate()
  const strangers = testCertificate()
  onEveryDatabase((_, open) => {
    const answering = async (answer: Answer) => (await receiver(certificate, () => answer)).url
    const saying = (text: string) => raw(certificate, (socket) => void socket.end(text))
    const tooSlow = ['timeout', 'Timeout after 500ms', /^the receiver took too long: /] as const
    const broken = /^the connection closed before the reply was complete: /
    const untrusted = /^the certificate was not accepted: /
    const cases: Case[] = [
      ['never answers', ...tooSlow, () => raw(certificate, () => {})],
      ['never completes the TLS handshake', ...tooSlow, () => rawTcp(() => {})],
      [
        'never ends its reply',
        ...tooSlow,
        () =>
          raw(certificate, (socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc')),
      ],
      [
        'sends one byte at a time',
        ...tooSlow,
        () =>
          raw(certificate, (socket) => {
            socket.write('HTTP/1.1 200 OK\r\n\r\n')
            const drip = setInterval(() => socket.write('x'), 50)
            onTestFinished(() => clearInterval(drip))
            socket.on('close', () => clearInterval(drip))
          }),
      ],
      [
        'sends only interim responses',
        'broken',
        /interim/,
        broken,
        () => {
          const { behave } = endless(
            '',
            Buffer.from('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(9)),
          )
          return raw(certificate, behave)
        },
      ],
      ['answers garbage', 'broken', /./, broken, () => saying('\u0000\u0001garbage\r\n\r\n')],
      ['answers half a status line', 'broken', /./, broken, () => saying('HTTP/1.1 2')],
      ['closes its half', 'broken', /./, broken, () => raw(certificate, (socket) => void socket.end())],
      ['hangs up', 'broken', /./, broken, () => raw(certificate, (socket) => void socket.destroy())],
      ['hangs up before TLS', 'broken', /./, broken, () => rawTcp((socket) => void socket.destroy())],
      [
        'hangs up mid-reply',
        'broken',
        /./,
        broken,
        () => saying('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc'),
      ],
      [
        'sends invalid chunks',
        'broken',
        /./,
        broken,
        () => saying('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n'),
      ],
      [
        'sends endless headers',
        'broken',
        /[Hh]eader/,
        broken,
        () => {
          const { behave } = endless('HTTP/1.1 200 OK\r\n', Buffer.from(`x-a: ${'x'.repeat(1000)}\r\n`))
          return raw(certificate, behave)
        },
      ],
      [
        'sends one endless header',
        'broken',
        /[Hh]eader/,
        broken,
        () => raw(certificate, endless('HTTP/1.1 200 OK\r\nx-a: ', Buffer.alloc(4096, 'x')).behave),
      ],
      [
        'speaks no TLS',
        'tls',
        /./,
        untrusted,
        () => rawTcp((socket) => void socket.end('HTTP/1.1 200 OK\r\n\r\n')),
      ],
      [
        'has a certificate for another name',
        'tls',
        /127\.0\.0\.2/,
        untrusted,
        () => raw(certificate, (socket) => void socket.end('HTTP/1.1 200 OK\r\n\r\n'), '127.0.0.2'),
      ],
      [
        'has a certificate of an unknown issuer',
        'tls',
        /self-signed/,
        untrusted,
        async () => (await receiver(strangers)).url,
      ],
      [
        'redirects',
        'redirect',
        'HTTP 302',
        /^redirects are not followed: /,
        () => answering({ status: 302, headers: { location: 'https://10.0.0.1/' } }),
      ],
      [
        'refuses',
        '4xx',
        'HTTP 400: no',
        /^the receiver refused it: /,
        () => answering({ status: 400, body: 'no' }),
      ],
      ['rejects our credentials', '4xx', 'HTTP 401', /secret\?$/, () => answering({ status: 401 })],
      ['fails', '5xx', 'HTTP 500', /^the receiver failed while /, () => answering({ status: 500 })],
      [
        'answers with a status out of range',
        '5xx',
        'HTTP 999',
        /^the receiver failed while /,
        () => saying('HTTP/1.1 999 ?\r\n\r\n'),
      ],
    ]

    it.each([
      ['too slow', cases.filter(([, one]) => one === 'timeout'), '500'],
      ['faulty', cases.filter(([, one]) => one !== 'timeout'), '30000'],
    ])('and is %s gets its failure class, and delays no other', async (_, all, WEBHOOK_TIMEOUT_MS) => {
      const fixture = await stage(open, certificate, { env: { WEBHOOK_TIMEOUT_MS } })
      const well = await healthy(certificate, fixture)
      const hooks: string[] = []
      for (const [name, , , , open] of all) {
        hooks.push(await fixture.hook(await open(), { name }, { maxRetries: 0 }))
      }
      await fixture.raise(2)
      await well.beats()
      for (const [n, [does, failureClass, errorMessage, hint]] of all.entries()) {
        for (const one of await fixture.untilAll(hooks[n]!, 2, ({ status }) => status === 'failed')) {
          expect({ does, ...one }).toMatchObject({ does, failureClass, attempt: 1, deliveredAt: null })
          expect(one.errorMessage, does).toMatch(errorMessage)
          expect(one.hint, does).toMatch(hint)
        }
      }
    })

    it('by sending 1 GB is read up to 64 KiB and disconnected', async () => {
      const fixture = await stage(open, certificate)
      const { behave, left } = endless('HTTP/1.1 200 OK\r\n\r\n', Buffer.alloc(1 << 16, 'x'))
      const id = await fixture.hook(await raw(certificate, behave))
      await fixture.raise()
      const [one] = await fixture.untilAll(id, 1, ({ attempt }) => attempt > 0)
      expect(one).toMatchObject({ status: 'delivered', responseStatus: 200 })
      expect(one!.responseBody).toBe('x'.repeat(1000))
      expect(await left).toBeLessThan(16 << 20)
    })
  })
})
