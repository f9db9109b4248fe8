import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import type { Agent } from 'undici'
import {
  type FailureKind,
  type Outbound,
  OutboundFailure,
  type OutboundReply,
  type OutboundRequest,
} from '../../src/core/outbound.ts'
import { ResponseCollector } from './exchange.ts'
import {
  BlockedAddressError,
  checkHost,
  guardedConnect,
  type OutboundSettings,
  type Protocol,
  type Resolve,
  resolveHost,
} from './guard.ts'
import { queuedLookup } from './lookup.ts'

/** Bytes of a reply to read, unless the request sets them. */
const usualBody = 64 << 10
const maxHeaders = 16 << 10
/** Time limit of a connection attempt without a waiting request. */
const connectMs = 60_000

/**
 * Requests to addresses from untrusted input: the name is resolved for
 * each, even if a connection is still open, and connections go to the checked addresses. undici is
 * loaded for the first request.
 */
export function guardedClient(settings: OutboundSettings, resolve: Resolve = queuedLookup()): Outbound {
  const ways = {
    'http:': checkedWay('http:', settings, resolve),
    'https:': checkedWay('https:', settings, resolve),
  }
  let agents: Promise<Record<string, Agent>> | undefined

  async function open() {
    const { Agent } = await import('undici')
    const agentTo = (protocol: Protocol) =>
      new Agent({
        connect: { ...ways[protocol].connect, timeout: connectMs },
        // With HTTP/2 all requests to a host would wait for one connection.
        allowH2: false,
        maxHeaderSize: maxHeaders,
        // The signal of the request is the time limit.
        headersTimeout: 0,
        bodyTimeout: 0,
        keepAliveTimeout: 10_000,
        keepAliveMaxTimeout: 30_000,
      })
    return { 'http:': agentTo('http:'), 'https:': agentTo('https:') }
  }

  async function send(request: OutboundRequest): Promise<OutboundReply> {
    const { method, url, headers, body, milliseconds, maxBody = usualBody } = request
    const begin = performance.now()
    const target = new URL(url)
    const exchange = new ResponseCollector(maxBody)
    const timer = setTimeout(() => exchange.end(new DOMException('too late', 'TimeoutError')), milliseconds)
    let forget: (() => void) | undefined
    try {
      checkHost(target, settings)
      agents ??= open()
      const dispatcher = (await agents)[target.protocol]
      if (!dispatcher) throw new BlockedAddressError(`${target.protocol} is not spoken`)
      if (!isAddress(target.hostname)) {
        const checked = ways[target.protocol as Protocol].check(target.hostname)
        await Promise.race([checked, exchange.reply])
        forget = await checked
      }
      const { origin, pathname, search } = target
      dispatcher.dispatch({ origin, path: pathname + search, method, headers, body: body ?? null }, exchange)
      const reply = await exchange.reply
      return {
        ...reply,
        headers: Object.fromEntries(
          Object.entries(reply.headers).map(([name, value]) => [name, [value].flat().join(', ')]),
        ),
        milliseconds: Math.round(performance.now() - begin),
      }
    } catch (error) {
      throw failureOf(error, milliseconds)
    } finally {
      clearTimeout(timer)
      forget?.()
    }
  }

  return {
    send,
    locateHost: (url) => resolveHost(url, settings, resolve),
    async close() {
      await Promise.all(Object.values((await agents) ?? {}).map((agent) => agent.destroy()))
    },
  }
}

/** Connections use the addresses of the latest check of their name. */
function checkedWay(protocol: Protocol, settings: OutboundSettings, resolve: Resolve) {
  const way = guardedConnect(protocol, settings, resolve)
  const found = new Map<string, LookupAddress[]>()
  const lookup: LookupFunction = (hostname, options, callback) => {
    const addresses = options.all ? found.get(hostname) : undefined
    if (addresses) (callback as unknown as (error: null, all: LookupAddress[]) => void)(null, addresses)
    else way.lookup(hostname, options, callback)
  }
  return {
    connect: { ...way, lookup },
    /** Returns a function that ends the use. @throws BlockedAddressError */
    async check(hostname: string): Promise<() => void> {
      const addresses = await new Promise<LookupAddress[]>((done, fail) =>
        way.lookup(hostname, { all: true }, (error, all) =>
          error ? fail(error) : done(all as unknown as LookupAddress[]),
        ),
      )
      found.set(hostname, addresses)
      return () => {
        if (found.get(hostname) === addresses) found.delete(hostname)
      }
    },
  }
}

const isAddress = (hostname: string): boolean => isIP(hostname) !== 0 || hostname.startsWith('[')

const kinds: readonly [RegExp, FailureKind][] = [
  [/^(ENOTFOUND|EAI_|ENODATA|ESERVFAIL)/, 'dns'],
  [/^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL)$/, 'refused'],
  [/TIMEOUT|^ETIMEDOUT$/, 'timeout'],
  [/^(ERR_TLS|ERR_SSL|EPROTO|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|ERR_OSSL|HOSTNAME_MISMATCH)/, 'tls'],
]

function failureOf(error: unknown, milliseconds: number): OutboundFailure {
  // Of several tried addresses, the first failure.
  const first = error instanceof AggregateError && error.errors.length > 0 ? error.errors[0] : error
  if (first instanceof BlockedAddressError) return new OutboundFailure('blocked', first.message, error)
  const { name, code, message } = first as { name?: string; code?: unknown; message: string }
  const said = String(code ?? '')
  const kind =
    name === 'TimeoutError' ? 'timeout' : (kinds.find(([pattern]) => pattern.test(said))?.[1] ?? 'broken')
  if (kind === 'timeout') {
    const passed = said === 'UND_ERR_CONNECT_TIMEOUT' ? connectMs : milliseconds
    return new OutboundFailure(kind, `Timeout after ${passed}ms`, error)
  }
  return new OutboundFailure(kind, message, error)
}
