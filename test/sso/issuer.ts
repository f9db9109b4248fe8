import { createServer } from 'node:https'
import { onTestFinished } from 'vitest'
import { listening, type testCertificate } from '../cli/network.ts'
import { documentOf } from './provider-fixture.ts'

type Answer = { status?: number; headers?: Record<string, string>; body?: string }

/** An OpenID Connect issuer over HTTPS that serves `document` or another answer; it ends with the test. */
export async function issuerOf(certificate: ReturnType<typeof testCertificate>) {
  const self = {
    url: '',
    document: {} as Record<string, unknown>,
    answer: (): Answer => ({ body: JSON.stringify(self.document) }),
    asked: [] as string[],
  }
  const server = createServer(certificate.pair(), (request, reply) => {
    self.asked.push(`${request.method} ${request.url}`)
    const { status = 200, headers, body } = self.answer()
    reply.writeHead(status, headers).end(body)
  })
  self.url = `https://127.0.0.1:${await listening(server)}`
  self.document = documentOf(self.url)
  onTestFinished(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return self
}
