import { request } from 'undici'
import { api } from '../../src/api.ts'
import type { ChainEntry } from '../../src/audit/chain.ts'
import type { Verdict } from '../../src/audit/verifier/verdict.ts'
import { ChainVerifier } from '../../src/audit/verifier/verifier.ts'
import type { Client } from '../../src/core/client.ts'
import type { ErrorBody } from '../../src/core/errors.ts'

export type Reply<T> = {
  status: number
  headers: Record<string, string | undefined>
  cookies: string[]
  body: T
}

type Parts = { token?: string | undefined; body?: unknown; headers?: Record<string, string> }
type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD' | 'OPTIONS'

/** One request as it is on the wire, whatever its reply; a body that is text is sent unchanged. */
export async function send<T = ErrorBody>(
  url: string,
  method: Method,
  path: string,
  { token, body, headers = {} }: Parts = {},
): Promise<Reply<T>> {
  const reply = await request(url + path, {
    method,
    headers: {
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await reply.body.text()
  const cookies = [reply.headers['set-cookie'] ?? []].flat()
  const plain = reply.headers as Record<string, string | undefined>
  return { status: reply.statusCode, headers: plain, cookies, body: (text && JSON.parse(text)) as T }
}

/** The whole chain of an organization (or of the system) and the verifier's verdict on its bytes. */
export async function readChain(
  client: Client,
  orgId?: string,
): Promise<{ verdict: Verdict; entries: ChainEntry[] }> {
  const verifier = new ChainVerifier()
  const chunks: Buffer[] = []
  for await (const chunk of client.stream(api.auditLogs.chain, { query: { orgId } })) {
    verifier.push(chunk)
    chunks.push(chunk)
  }
  const lines = Buffer.concat(chunks).toString('utf8').trim().split('\n')
  const entries = lines.slice(1, -1).map((line) => (JSON.parse(line) as { entry: ChainEntry }).entry)
  return { verdict: verifier.end(), entries }
}

export const machine = (enrollmentKey: string, hostname: string) => ({
  enrollmentKey,
  hostname,
  osType: 'linux' as const,
  osVersion: 'Debian 12',
  architecture: 'x64',
  agentVersion: '0.1.0',
})
