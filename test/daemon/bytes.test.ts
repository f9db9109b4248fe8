import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import fastify from 'fastify'
import { Registry } from 'prom-client'
import { Pool } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { BodyBudget } from '../../daemon/body-budget.ts'
import { sendBytes } from '../../daemon/bytes.ts'
import { sendProblem } from '../../daemon/problems.ts'
import { limitSlowReaders } from '../../daemon/reply-timeout.ts'
import type { FileReply } from '../../src/handler.ts'
import { sha256 } from '../agents/signed-release.ts'
import { until } from './process.ts'

const content = randomBytes(300_000)
const checksum = sha256(content)
const tag = `"${checksum}"`

/** A file in memory, sent in pieces, that counts how often it is open. */
class File {
  open = 0
  taken = 0
  pieces = 10_000
  /** It ends here, whatever size it declared. */
  end = content.length

  get bytes(): FileReply {
    this.open += 1
    let isOpen = true
    return {
      name: 'svc-agent-linux-amd64',
      size: content.length,
      checksum,
      read: (from, to) => this.#read(from, Math.min(to, this.end - 1)),
      close: async () => {
        if (isOpen) this.open -= 1
        isOpen = false
      },
    }
  }

  async *#read(from: number, to: number) {
    for (let at = from; at <= to; at += this.pieces) {
      const piece = content.subarray(at, Math.min(at + this.pieces, to + 1))
      this.taken += piece.length
      yield piece
    }
  }
}

const idleMs = 300
let file = new File()
const app = fastify()
limitSlowReaders(app, new BodyBudget({ whole: 2 ** 30, perCaller: 2 ** 30 }, 'replies', new Registry()), {
  idleMs,
  bytesPerSecond: 1,
})
app.setErrorHandler((error, request, reply) => sendProblem(request, reply, error))
app.route({
  method: ['GET', 'HEAD'],
  url: '/file',
  handler: (request, reply) => sendBytes(request, reply, file.bytes),
})
let url: string
let pool: Pool
beforeAll(async () => {
  url = await app.listen({ host: '127.0.0.1', port: 0 })
  pool = new Pool(url, { connections: 4 })
})
afterAll(async () => {
  await pool.destroy()
  app.server.closeAllConnections()
  await app.close()
})

async function get(headers: Record<string, string> = {}, method: 'GET' | 'HEAD' = 'GET') {
  const reply = await pool.request({ method, path: '/file', headers })
  const body = Buffer.from(await reply.body.arrayBuffer())
  return { status: reply.statusCode, headers: reply.headers, body }
}
const ofWhole = {
  etag: tag,
  'accept-ranges': 'bytes',
  'content-type': 'application/octet-stream',
  'content-length': String(content.length),
  'content-disposition': 'attachment; filename="svc-agent-linux-amd64"',
}

describe('a file download', () => {
  it('sends the whole file, and to HEAD only the headers', async () => {
    const whole = await get()
    expect(whole).toMatchObject({ status: 200, headers: ofWhole })
    expect(whole.body.equals(content)).toBe(true)
    const head = await get({ range: 'bytes=0-9' }, 'HEAD')
    expect(head).toMatchObject({ status: 200, headers: ofWhole })
    expect([head.body.length, head.headers['content-range']]).toEqual([0, undefined])
  })

  it('sends exactly the requested range, or 416', async () => {
    const place = fc.oneof(
      fc.integer({ min: 0, max: content.length + 10 }),
      fc.constantFrom(0, 1, 9_999, 10_000, content.length - 1, content.length, 2 ** 40),
    )
    await fc.assert(
      fc.asyncProperty(fc.option(place), fc.option(place), async (first, last) => {
        const { status, headers, body } = await get({ range: `bytes=${first ?? ''}-${last ?? ''}` })
        const isNone = (first === null && last === null) || (first !== null && last !== null && last < first)
        if (isNone) {
          expect([status, body.equals(content)]).toEqual([200, true])
          return
        }
        const from = first ?? Math.max(0, content.length - last!)
        const to = first === null ? content.length - 1 : Math.min(last ?? Infinity, content.length - 1)
        if (from >= content.length) {
          expect([status, headers['content-range']]).toEqual([416, `bytes */${content.length}`])
          expect(JSON.parse(body.toString())).toMatchObject({ code: 'range_not_satisfiable' })
          return
        }
        expect([status, headers['content-range']]).toEqual([206, `bytes ${from}-${to}/${content.length}`])
        expect(headers['content-length']).toBe(String(to - from + 1))
        expect(body.equals(content.subarray(from, to + 1))).toBe(true)
      }),
      { numRuns: 300 },
    )
    expect(file.open).toBe(0)
  })

  it('assembled from ranges is the whole file', async () => {
    const parts: Buffer[] = []
    for (let at = 0; at < content.length; at += 77_777) {
      parts.push((await get({ range: `bytes=${at}-${at + 77_776}`, 'if-range': tag })).body)
    }
    expect(Buffer.concat(parts).equals(content)).toBe(true)
  })

  it.each(['bytes=a-b', 'bytes=1', 'lines=1-2', 'bytes=0-1,5-6', 'bytes=--1', 'bytes=-', '', 'bytes=5-2'])(
    'sends the whole file for the malformed or multiple range "%s"',
    async (range) => {
      const { status, body } = await get({ range })
      expect([status, body.length]).toEqual([200, content.length])
    },
  )

  it('resumes only with an If-Range that matches', async () => {
    const range = 'bytes=10-19'
    for (const other of [`W/${tag}`, '"another"', 'Wed, 21 Oct 2015 07:28:00 GMT', '']) {
      const { status, body } = await get({ range, 'if-range': other })
      expect([other, status, body.length]).toEqual([other, 200, content.length])
    }
    expect(await get({ range, 'if-range': tag })).toMatchObject({ status: 206 })
  })

  it.each([tag, `W/${tag}`, '*', `"a", ${tag}`, `"a",W/${tag} , "b"`])(
    'is a 304 for If-None-Match: %s',
    async (known) => {
      for (const method of ['GET', 'HEAD'] as const) {
        const { status, headers, body } = await get({ 'if-none-match': known, range: 'bytes=0-1' }, method)
        expect([status, headers.etag, body.length]).toEqual([304, tag, 0])
      }
      expect((await get({ 'if-none-match': '"other"' })).status).toBe(200)
    },
  )
})

describe('a file being sent', () => {
  it('is read no faster than the client takes it, and closed once the client stops', async () => {
    file = new File()
    file.pieces = 1000
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    // The system buffers no more than some hundred kilobytes for a client that reads nothing.
    const many = 'GET /file HTTP/1.1\r\nhost: a\r\n\r\n'.repeat(40)
    socket.pause()
    socket.write(many)
    let ended = false
    socket.on('close', () => {
      ended = true
    })
    await until(() => file.taken > 0)
    await sleep(idleMs / 2)
    const taken = file.taken
    await sleep(idleMs / 4)
    expect(file.taken).toBe(taken)
    expect(taken).toBeLessThan(40 * content.length)
    socket.on('error', () => {})
    await until(() => file.open === 0)
    socket.resume()
    await until(() => ended)
  })

  it('is closed when the client hangs up, at any moment', async () => {
    file = new File()
    file.pieces = 100
    for (let round = 0; round < 20; round += 1) {
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      socket.on('error', () => {})
      socket.write('GET /file HTTP/1.1\r\nhost: a\r\n\r\n')
      if (round % 2) await new Promise((resolve) => socket.once('data', resolve))
      socket.destroy()
    }
    await until(() => file.open === 0)
    expect(file.open).toBe(0)
  })

  it('ends the connection when the file turns out shorter than declared', async () => {
    file = new File()
    file.end = 50_000
    await expect(get()).rejects.toThrow()
    expect(file.open).toBe(0)
    file = new File()
    expect((await get()).status).toBe(200)
  })
})
