import { type LookupAddress, type LookupOptions, lookup } from 'node:dns'
import { readFileSync } from 'node:fs'
import type { Agent as HttpAgent } from 'node:http'
import type { Agent as HttpsAgent } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { createSecureContext, rootCertificates } from 'node:tls'
import ipaddr from 'ipaddr.js'
import { SetupError } from '../../src/core/errors.ts'
import type { ResolvedHost } from '../../src/core/outbound.ts'
import type { Env } from '../variables.ts'

/** Limits of outbound connections. */
export type OutboundSettings = {
  /** OUTBOUND_ALLOW_CIDRS: private ranges that are allowed. */
  allowed: readonly string[]
  /** OUTBOUND_CA_FILE: PEM, trusted besides the usual ones. */
  ca: string | undefined
}

/** @throws SetupError */
export function readOutbound(env: Env): OutboundSettings {
  const allowed = (env.OUTBOUND_ALLOW_CIDRS ?? '').split(',').flatMap((one) => one.trim() || [])
  const wrong = allowed.find((range) => !ipaddr.isValidCIDR(range))
  if (wrong !== undefined) {
    throw new SetupError(
      `OUTBOUND_ALLOW_CIDRS must be ranges such as 10.0.0.0/8, separated by commas: "${wrong}" is not one`,
    )
  }
  return { allowed, ca: readCa(env.OUTBOUND_CA_FILE) }
}

function readCa(file: string | undefined): string | undefined {
  if (!file) return undefined
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new SetupError(`OUTBOUND_CA_FILE cannot be read: ${(error as Error).message}`)
  }
}

/** An address that the service does not connect to. */
export class BlockedAddressError extends Error {
  override name = 'BlockedAddressError'
}

type Kind = 'public' | 'allowed' | 'refused'

/** All allocated public IPv6 (IANA, Internet Protocol Version 6 Address Space). */
const publicSix = ipaddr.parseCIDR('2000::/3')

const parsedRanges = new Map<string, ReturnType<typeof ipaddr.parseCIDR>>()

/** Ranges of the operator are few: each is parsed once, and checked with each request. */
function parsedRange(range: string) {
  const parsed = parsedRanges.get(range) ?? ipaddr.parseCIDR(range)
  parsedRanges.set(range, parsed)
  return parsed
}

/** Public means unicast and nothing else: not private, local, reserved, nor a form that hides such an address. */
export function classifyAddress(address: string, { allowed }: Pick<OutboundSettings, 'allowed'>): Kind {
  if (!ipaddr.isValid(address)) return 'refused'
  const parsed = ipaddr.process(address)
  const isAllowed = allowed.some((range) => {
    const [network, bits] = parsedRange(range)
    return network.kind() === parsed.kind() && parsed.match(network, bits)
  })
  if (isAllowed) return 'allowed'
  const said = ipaddr.parse(address)
  const isGivenOut = said.kind() === 'ipv4' || said.match(publicSix)
  return isGivenOut && said.range() === 'unicast' ? 'public' : 'refused'
}

/**
 * Agents that connect only to checked addresses, which prevents DNS rebinding: the name may have another address a moment
 * later. Without TLS only to addresses that the operator allowed.
 */
export function guardedAgents(settings: OutboundSettings): { http: HttpAgent; https: HttpsAgent } {
  // An import would load all that node:http can give (daemon/problems.ts).
  const { Agent: Http } = process.getBuiltinModule('node:http')
  const { Agent: Https } = process.getBuiltinModule('node:https')
  const common = { keepAlive: true, maxSockets: 16 }
  const http = new Http({ ...common, ...guardedConnect('http:', settings) })
  const https = new Https({ ...common, ...guardedConnect('https:', settings) })
  return { http, https }
}

export type Protocol = 'http:' | 'https:'
export type Resolve = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void

/** A connect function with address checks. Certificates are read once: that takes milliseconds. */
export function guardedConnect(protocol: Protocol, settings: OutboundSettings, resolve: Resolve = lookup) {
  const ca = settings.ca === undefined ? {} : { ca: [...rootCertificates, settings.ca] }
  return {
    lookup: checkedLookup(settings, openTo(protocol), resolve),
    ...(protocol === 'https:' && { secureContext: createSecureContext(ca) }),
  }
}

const openTo = (protocol: string): readonly Kind[] =>
  protocol === 'https:' ? ['allowed', 'public'] : ['allowed']

function checkedLookup(settings: OutboundSettings, open: readonly Kind[], resolve: Resolve): LookupFunction {
  return (hostname, options: LookupOptions, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses) => {
      const refused =
        error ??
        refusal(
          hostname,
          addresses.map(({ address }) => address),
          settings,
          open,
        )
      if (refused) return callback(refused as NodeJS.ErrnoException, '', 0)
      if (options.all) return (callback as (e: null, all: LookupAddress[]) => void)(null, addresses)
      callback(null, addresses[0]!.address, addresses[0]!.family)
    })
  }
}

function refusal(
  hostname: string,
  addresses: string[],
  settings: OutboundSettings,
  open: readonly Kind[],
): Error | undefined {
  const bad = addresses.find((address) => !open.includes(classifyAddress(address, settings)))
  if (addresses.length > 0 && bad === undefined) return undefined
  const why = open.includes('public') ? 'it is not public' : 'it is reached without TLS'
  return new BlockedAddressError(
    `${hostname} (${bad ?? 'no address'}) is refused: ${why} and OUTBOUND_ALLOW_CIDRS does not open it`,
  )
}

/** Checks a literal address; names are checked when they are resolved. @throws BlockedAddressError */
export function checkHost(url: URL, settings: OutboundSettings): void {
  const host = hostOf(url)
  if (isIP(host) === 0) return
  const refused = refusal(host, [host], settings, openTo(url.protocol))
  if (refused) throw refused
}

const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1')

/** Time limit of a name lookup while a caller waits. */
const lookupMs = 5000

export async function resolveHost(
  url: URL,
  settings: OutboundSettings,
  resolve: Resolve,
): Promise<ResolvedHost> {
  const host = hostOf(url)
  const isInside = (address: string) => classifyAddress(address, settings) === 'refused'
  if (isIP(host) !== 0) return { network: isInside(host) ? 'private' : 'public' }
  const found = await new Promise<string[]>((done) => {
    const late = setTimeout(done, lookupMs, [])
    resolve(host, { all: true }, (error, addresses) => {
      clearTimeout(late)
      done(error ? [] : addresses.map(({ address }) => address))
    })
  })
  if (found.length === 0) return { network: 'unresolved' }
  const addresses = found.filter(isInside)
  return addresses.length > 0 ? { network: 'private by name', addresses } : { network: 'public' }
}
