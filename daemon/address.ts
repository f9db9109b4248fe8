import ipaddr from 'ipaddr.js'
import { isLoopback, normalizeAddress as plain } from '../src/core/network.ts'

/** The trusted proxies, if any. */
export type Proxies = { trusted: readonly string[]; cloudflare: boolean } | undefined

type Headers = Readonly<Record<string, string | string[] | undefined>>

/**
 * The client address of a request, and whether it used TLS, which ends at the proxy. `isLocal`: the connection is from this
 * machine, and does not forward another client.
 */
export type ClientAddress = { ip: string; https: boolean; isLocal: () => boolean }

/** Headers with which a proxy on this machine, trusted or not, shows that it forwards another client. */
const forwarding = ['x-forwarded-for', 'x-real-ip', 'cf-connecting-ip', 'true-client-ip', 'forwarded', 'via']

/**
 * The client's address: that of the connection, or the one that a trusted proxy
 * reports.
 */
export function clientReader(
  proxies: Proxies,
  publicUrl?: string,
): (peer: string, headers: Headers) => ClientAddress {
  // With an HTTPS public address, session cookies are Secure whatever terminates TLS.
  const always = publicUrl?.startsWith('https:') === true
  // Only requests with a password ask for it: to parse the address costs each of the others 4 µs.
  const localOf = (peer: string, headers: Headers) => () =>
    isLoopback(peer) && forwarding.every((name) => headers[name] === undefined)
  if (!proxies)
    return (peer, headers) => ({ ip: plain(peer), https: always, isLocal: localOf(peer, headers) })
  const trusted = proxyReader(proxies)
  return (peer, headers) => {
    const isLocal = localOf(peer, headers)
    if (!trusted(peer)) return { ip: plain(peer), https: always, isLocal }
    const cloudflare = proxies.cloudflare ? valid(headers['cf-connecting-ip']) : undefined
    const forwarded = rightmostClient(headers['x-forwarded-for'], trusted)
    const ip = cloudflare ?? forwarded ?? valid(headers['x-real-ip']) ?? plain(peer)
    return { ip, https: always || headers['x-forwarded-proto'] === 'https', isLocal }
  }
}

/** Whether an address is that of a trusted proxy. */
export function proxyReader(proxies: Proxies): (address: string) => boolean {
  if (!proxies) return () => false
  const ranges = proxies.trusted.map((cidr) => ipaddr.parseCIDR(cidr))
  return (address) => {
    if (!ipaddr.isValid(address)) return false
    const parsed = ipaddr.process(address)
    return ranges.some((range) => parsed.kind() === range[0].kind() && parsed.match(range))
  }
}

/** The rightmost address that is not a trusted proxy. */
function rightmostClient(
  header: string | string[] | undefined,
  trusted: (address: string) => boolean,
): string | undefined {
  const hops = [header ?? []]
    .flat()
    .join(',')
    .split(',')
    .map((hop) => hop.trim())
  return valid(hops.findLast((hop) => hop !== '' && !trusted(hop)))
}

/** Normalized, so that one address is one client; without the zone, which may be any text of any length. */
function valid(header: string | string[] | undefined): string | undefined {
  const [text = ''] = typeof header === 'string' ? header.trim().split('%', 1) : []
  if (!ipaddr.IPv4.isValidFourPartDecimal(text) && !ipaddr.IPv6.isValid(text)) return undefined
  return ipaddr.process(text).toString()
}

/** The unit of limits by client: an IPv4 address, or the /64 network of an IPv6 one. */
export function networkOf(address: string): string {
  if (!address.includes(':') || !ipaddr.isValid(address)) return address
  return ipaddr.parse(address).toByteArray().slice(0, 8).join('.')
}
