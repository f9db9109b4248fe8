import { createServer, type RequestListener } from 'node:http'
import { onTestFinished } from 'vitest'
import { until } from '../daemon/process.ts'
import { secret, signedHeaders } from '../webhooks/signed.ts'
import { follow } from './follow-process.ts'
import { listening } from './network.ts'
import type { Home } from './run.ts'

type Options = {
  args?: string[]
  /** The arguments for the secret. */
  known?: string[]
  env?: Record<string, string>
  input?: string
}

/** Runs the command at a free port, by default with the secret. */
export async function listen(home: Home, { args = ['--json'], known, env = {}, input }: Options = {}) {
  const secrets = known ?? ['--secret', `@${home.write('secret', `${secret}\n`)}`]
  const command = follow(home, ['webhooks', 'listen', '--port', '0', ...secrets, ...args], env, input)
  const address = () => /Listening at (https?:\/\/[^\s,;]+)/.exec(command.said.stderr)?.[1]
  await until(() => address() !== undefined, 20_000)
  const url = address()!
  return {
    ...command,
    url,
    deliver: (event: object, headers?: Record<string, string>) => {
      const body = JSON.stringify(event)
      return fetch(url, { method: 'POST', headers: headers ?? signedHeaders(body), body })
    },
  }
}

type Taken = { method: string; url: string; headers: Record<string, unknown>; body: string }

/** A server to which deliveries are forwarded. */
export async function target(
  answer: (taken: Taken) => [status: number, headers?: object, body?: string | Buffer],
) {
  const taken: Taken[] = []
  const handle: RequestListener = async (request, reply) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const { method = '', url = '', headers } = request
    const one = { method, url, headers, body: Buffer.concat(chunks).toString() }
    taken.push(one)
    const [status, more = {}, body = ''] = answer(one)
    reply.writeHead(status, more as Record<string, string>).end(body)
  }
  const server = createServer(handle)
  onTestFinished(() => void server.close().closeAllConnections())
  return { taken, url: `http://127.0.0.1:${await listening(server)}/hooks?a=b` }
}
