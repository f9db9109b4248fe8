import ipaddr from 'ipaddr.js'

/** Normalized form of an address for comparison: an IPv4 address written as IPv6 becomes IPv4. */
export function normalizeAddress(address: string): string {
  if (!address.includes(':') || !ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed.kind() === 'ipv4' ? parsed.toString() : address
}

/**
 * The network of an address, as far as one attacker can control it: the /64 that IPv6 assigns to one customer,
 * and the /24 of IPv4, in which addresses are cheap to change.
 */
export function networkOfAddress(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  const [bits, rest] = parsed.kind() === 'ipv4' ? [24, 1] : [64, 8]
  const bytes = parsed.toByteArray().map((byte, at, all) => (at < all.length - rest ? byte : 0))
  return `${ipaddr.fromByteArray(bytes).toString()}/${bits}`
}

/** Whether an address is a loopback address. */
export const isLoopback = (address: string): boolean =>
  ipaddr.isValid(address) && ipaddr.process(address).range() === 'loopback'
