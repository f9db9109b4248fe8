import { describe, expect, it, onTestFinished } from 'vitest'
import type { FailureClass } from '../../src/webhooks/deliveries/contract.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { endless, raw, rawTcp } from './misbehaving.ts'
import { type Answer, receiver } from './receiver.ts'
import { healthy, stage } from './webhook-stage.ts'

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
      ['never shakes hands', ...tooSlow, () => rawTcp(() => {})],
      [
        'never ends its answer',
        ...tooSlow,
        () =>
          raw(certificate, (socket) => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc')),
      ],
      [
        'sends one byte after another',
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
        'only says that it goes on',
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
        'hangs up half way',
        'broken',
        /./,
        broken,
        () => saying('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc'),
      ],
      [
        'sends chunks that are none',
        'broken',
        /./,
        broken,
        () => saying('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n'),
      ],
      [
        'sends headers without end',
        'broken',
        /[Hh]eader/,
        broken,
        () => {
          const { behave } = endless('HTTP/1.1 200 OK\r\n', Buffer.from(`x-a: ${'x'.repeat(1000)}\r\n`))
          return raw(certificate, behave)
        },
      ],
      [
        'sends one header without end',
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
        'has a certificate of another name',
        'tls',
        /127\.0\.0\.2/,
        untrusted,
        () => raw(certificate, (socket) => void socket.end('HTTP/1.1 200 OK\r\n\r\n'), '127.0.0.2'),
      ],
      [
        'has a certificate of nobody we know',
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
      ['does not know us', '4xx', 'HTTP 401', /secret\?$/, () => answering({ status: 401 })],
      ['breaks', '5xx', 'HTTP 500', /^the receiver failed while /, () => answering({ status: 500 })],
      [
        'answers out of range',
        '5xx',
        'HTTP 999',
        /^the receiver failed while /,
        () => saying('HTTP/1.1 999 ?\r\n\r\n'),
      ],
    ]

    it.each([
      ['too slow', cases.filter(([, one]) => one === 'timeout'), '500'],
      ['in the wrong', cases.filter(([, one]) => one !== 'timeout'), '30000'],
    ])('and is %s gets its class and hint, and holds up nobody', async (_, all, WEBHOOK_TIMEOUT_MS) => {
      const hand = await stage(open, certificate, { env: { WEBHOOK_TIMEOUT_MS } })
      const well = await healthy(certificate, hand)
      const hooks: string[] = []
      for (const [name, , , , open] of all) {
        hooks.push(await hand.hook(await open(), { name }, { maxRetries: 0 }))
      }
      await hand.raise(2)
      await well.beats()
      for (const [n, [does, failureClass, errorMessage, hint]] of all.entries()) {
        for (const one of await hand.untilAll(hooks[n]!, 2, ({ status }) => status === 'failed')) {
          expect({ does, ...one }).toMatchObject({ does, failureClass, attempt: 1, deliveredAt: null })
          expect(one.errorMessage, does).toMatch(errorMessage)
          expect(one.hint, does).toMatch(hint)
        }
      }
    })

    it('that sends 1 GB is read for 64 KiB and left', async () => {
      const hand = await stage(open, certificate)
      const { behave, left } = endless('HTTP/1.1 200 OK\r\n\r\n', Buffer.alloc(1 << 16, 'x'))
      const id = await hand.hook(await raw(certificate, behave))
      await hand.raise()
      const [one] = await hand.untilAll(id, 1, ({ attempt }) => attempt > 0)
      expect(one).toMatchObject({ status: 'delivered', responseStatus: 200 })
      expect(one!.responseBody).toBe('x'.repeat(1000))
      expect(await left).toBeLessThan(16 << 20)
    })
  })
})
