import { type KeyObject, sign } from 'node:crypto'

/**
 * A self-signed certificate of an RSA key (RFC 5280, 4.1), DER. Providers mostly read only the key from it; its
 * end is the date that X.509 defines as no expiry (4.1.2.5).
 */
export function createSelfSigned(
  { privateKey, publicKey }: { privateKey: KeyObject; publicKey: KeyObject },
  { name, serial, from }: { name: string; serial: Buffer; from: Date },
): Buffer {
  const algorithm = sequence(oid(sha256WithRsa), der(0x05))
  const subject = sequence(der(0x31, sequence(oid(commonName), der(0x0c, Buffer.from(name)))))
  const digits = from.toISOString().replace(/[-:T]|\.\d+/g, '')
  const validity = sequence(
    der(0x17, Buffer.from(digits.slice(2))),
    der(0x18, Buffer.from('99991231235959Z')),
  )
  const body = sequence(
    // The leading 1 keeps the serial positive.
    der(0x02, Buffer.concat([Buffer.from([1]), serial])),
    algorithm,
    subject,
    validity,
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
  )
  return sequence(body, algorithm, der(0x03, Buffer.from([0]), sign('sha256', body, privateKey)))
}

export const sha256WithRsa = '2a864886f70d01010b'
export const commonName = '550403'

export function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts)
  const { length } = content
  const long = Buffer.from([length >> 8, length & 255])
  const size = length < 128 ? [length] : [0x80 | long.length, ...long]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

export const sequence = (...parts: Buffer[]): Buffer => der(0x30, ...parts)
export const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'))
