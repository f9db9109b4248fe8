import type { Agent, Dispatcher } from 'undici'
import {
  type FailureKind,
  type Outbound,
  OutboundFailure,
  type OutboundReply,
  type OutboundRequest,
} from '../../src/core/outbound.ts'
import {
  checkHost,
  guardedWay,
  type OutboundSettings,
  type Protocol,
  RefusedAddress,
  type Resolve,
  whereaboutsOf,
} from './guard.ts'
import { lookupInTurn } from './lookup.ts'

/** Bytes of a reply that are read. */
const mostBody = 64 << 10
const mostHeaders = 16 << 10

/**
 * Requests to addresses that somebody else has given (decisions.md, Outbound requests): each connection goes to an
 * address that was checked. Its package is loaded for the first of them.
 */
export function guardedClient(settings: OutboundSettings, resolve: Resolve = lookupInTurn()): Outbound {
  let agents: Promise<Record<string, Agent>> | undefined

  async function open() {
    const { Agent } = await import('undici')
    const agentTo = (protocol: Protocol) =>
      new Agent({
        connect: guardedWay(protocol, settings, resolve),
        maxHeaderSize: mostHeaders,
        // The signal of the request ends what takes too long.
        headersTimeout: 0,
        bodyTimeout: 0,
        keepAliveTimeout: 10_000,
        keepAliveMaxTimeout: 30_000,
      })
    return { 'http:': agentTo('http:'), 'https:': agentTo('https:') }
  }

  async function send({ method, url, headers, body, milliseconds }: OutboundRequest): Promise<OutboundReply> {
    const begin = performance.now()
    const target = new URL(url)
    const signal = AbortSignal.timeout(milliseconds)
    try {
      checkHost(target, settings)
      agents ??= open()
      const dispatcher = (await agents)[target.protocol]
      if (!dispatcher) throw new RefusedAddress(`${target.protocol} is not spoken`)
      const reply = await dispatcher.request({
        origin: target.origin,
        path: target.pathname + target.search,
        method,
        headers,
        body: body ?? null,
        signal,
      })
      const read = await beginningOf(reply.body)
      return {
        status: reply.statusCode,
        headers: Object.fromEntries(
          Object.entries(reply.headers).map(([name, value]) => [name, [value].flat().join(', ')]),
        ),
        ...read,
        milliseconds: Math.round(performance.now() - begin),
      }
    } catch (error) {
      throw failureOf(error, milliseconds)
    }
  }

  return {
    send,
    whereabouts: (url) => whereaboutsOf(url, settings, resolve),
    async close() {
      await Promise.all(Object.values((await agents) ?? {}).map((agent) => agent.destroy()))
    },
  }
}

async function beginningOf(
  body: Dispatcher.ResponseData['body'],
): Promise<{ body: Buffer; isWhole: boolean }> {
  const pieces: Buffer[] = []
  let left = mostBody
  // Leaving the loop closes the connection, with whatever still comes.
  for await (const piece of body as AsyncIterable<Buffer>) {
    pieces.push(piece.subarray(0, left))
    left -= piece.length
    if (left < 0) break
  }
  return { body: Buffer.concat(pieces), isWhole: left >= 0 }
}

const kinds: readonly [RegExp, FailureKind][] = [
  [/^(ENOTFOUND|EAI_|ENODATA|ESERVFAIL)/, 'dns'],
  [/^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL)$/, 'refused'],
  [/TIMEOUT|^ETIMEDOUT$/, 'timeout'],
  [/^(ERR_TLS|ERR_SSL|EPROTO|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|ERR_OSSL|HOSTNAME_MISMATCH)/, 'tls'],
]

function failureOf(error: unknown, milliseconds: number): OutboundFailure {
  // Of several addresses that were tried, what the first of them said.
  const first = error instanceof AggregateError && error.errors.length > 0 ? error.errors[0] : error
  if (first instanceof RefusedAddress) return new OutboundFailure('blocked', first.message, error)
  const { name, code, message } = first as { name?: string; code?: unknown; message: string }
  const said = String(code ?? '')
  const kind =
    name === 'TimeoutError' ? 'timeout' : (kinds.find(([pattern]) => pattern.test(said))?.[1] ?? 'broken')
  if (kind === 'timeout') return new OutboundFailure(kind, `Timeout after ${milliseconds}ms`, error)
  return new OutboundFailure(kind, message, error)
}
