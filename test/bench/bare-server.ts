// What the service is compared with: the same replies from a server that does nothing else.
// Runs as a process of its own: node bare.ts http|fastify <file of routes>
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import fastify from 'fastify'

/** `path` in Fastify's notation; `schema` is the JSON Schema of the reply. */
export type BareRoute = {
  method: 'GET' | 'POST'
  path: string
  status: number
  reply: unknown
  schema: object
}

const [kind, file = ''] = process.argv.slice(2)
const routes = JSON.parse(readFileSync(file, 'utf8')) as BareRoute[]
const { port } = kind === 'http' ? await plain() : await framework()
process.stdout.write(`${JSON.stringify({ url: `http://127.0.0.1:${port}` })}\n`)

function plain(): Promise<AddressInfo> {
  const places = routes.map((route) => ({ ...route, start: route.path.split(':')[0]! }))
  const server = createServer((request, response) => {
    const { method, url = '' } = request
    const route = places.find((one) => one.method === method && url.startsWith(one.start))
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      if (chunks.length > 0) JSON.parse(Buffer.concat(chunks).toString('utf8'))
      const body = JSON.stringify(route?.reply)
      response.writeHead(route?.status ?? 404, {
        'content-type': 'application/json; charset=utf-8',
        'content-length': Buffer.byteLength(body),
      })
      response.end(body)
    })
  })
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(server.address() as AddressInfo))
  })
}

async function framework(): Promise<AddressInfo> {
  const app = fastify()
  for (const { method, path, status, reply, schema } of routes) {
    app.route({
      method,
      url: path,
      schema: { response: { [status]: schema } },
      handler: async (_, answer) => {
        answer.code(status)
        return reply
      },
    })
  }
  await app.listen({ port: 0, host: '127.0.0.1' })
  return app.server.address() as AddressInfo
}
