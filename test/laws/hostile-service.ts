import { createServer } from 'node:http'
import { me } from '../cli/fake-service.ts'
import { listening } from '../cli/network.ts'
import { entryFor, hostile, hostileFor } from './hostile.ts'

/** The kind of answers. With `likely`, readers accept them and continue. */
export type Answer = 'likely' | 'wild' | 'refusal'

const refusal = {
  error: hostile,
  code: hostile,
  requestId: hostile,
  details: [{ path: hostile, message: hostile }],
}

/** Answers every endpoint of the contract with hostile values. */
export class HostileService {
  /** The requests: method, address and body. */
  readonly asked: string[] = []
  readonly #server

  constructor(answer: Answer) {
    this.#server = createServer((request, reply) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        this.asked.push(`${request.method} ${request.url} ${Buffer.concat(chunks)}`)
        const path = new URL(request.url ?? '', 'http://x').pathname.replace(/^.*?\/api\/v1/, '')
        const entry = entryFor(request.method ?? '', path)
        const isRefused = answer === 'refusal' || entry === undefined
        const named = { ...me, user: { ...me.user, name: hostile } }
        const body = isRefused
          ? refusal
          : path === '/auth/me'
            ? named
            : hostileFor(entry.reply, answer === 'likely')
        reply.writeHead(answer === 'refusal' ? 400 : (entry?.status ?? 200), {
          'content-type': 'application/json',
        })
        reply.end(JSON.stringify(body))
      })
    })
  }

  async start(): Promise<string> {
    return `http://127.0.0.1:${await listening(this.#server)}`
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
