import ipaddr from 'ipaddr.js'

/** An address as it is compared: IPv4 written as IPv6, in whatever way, is IPv4. */
export function normalizeAddress(address: string): string {
  if (!address.includes(':') || !ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed.kind() === 'ipv4' ? parsed.toString() : address
}

/**
 * The network that an address is in, as far as one guesser has it: the /64 that IPv6 gives to one customer, and the /24
 * of IPv4, in which addresses are cheap to change.
 */
export function networkOfAddress(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  const [bits, rest] = parsed.kind() === 'ipv4' ? [24, 1] : [64, 8]
  const bytes = parsed.toByteArray().map((byte, at, all) => (at < all.length - rest ? byte : 0))
  return `${ipaddr.fromByteArray(bytes).toString()}/${bits}`
}

/** Whether an address is one of the machine itself. */
export const isLoopback = (address: string): boolean =>
  ipaddr.isValid(address) && ipaddr.process(address).range() === 'loopback'
