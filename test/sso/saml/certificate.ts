import {
  generateKeyPairSync,
  type KeyObject,
  sign,
  X509Certificate as X509,
  type X509Certificate,
} from 'node:crypto'
import { commonName, der, oid, sequence, sha256WithRsa } from '../../../src/sso/saml/certificate.ts'

export type KeyPair = { privateKey: KeyObject; publicKey: KeyObject }

export const rsaKeys = (modulusLength = 2048): KeyPair => generateKeyPairSync('rsa', { modulusLength })
export const ecKeys = (namedCurve = 'P-256'): KeyPair => generateKeyPairSync('ec', { namedCurve })

/** A self-signed certificate (RFC 5280, 4.1), valid for the given time. */
export function selfSigned(
  { privateKey, publicKey }: KeyPair,
  { from, to }: { from: Date; to: Date } = { from: new Date('2020-01-01'), to: new Date('2120-01-01') },
): X509Certificate {
  const isRsa = publicKey.asymmetricKeyType === 'rsa'
  const algorithm = sequence(oid(isRsa ? sha256WithRsa : sha256WithEcdsa), ...(isRsa ? [der(0x05)] : []))
  const name = sequence(der(0x31, sequence(oid(commonName), der(0x0c, Buffer.from('idp.example.com')))))
  const body = sequence(
    der(0x02, Buffer.from([1])),
    algorithm,
    name,
    sequence(time(from), time(to)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
  )
  const signature = sign('sha256', body, privateKey)
  return new X509(sequence(body, algorithm, der(0x03, Buffer.from([0]), signature)))
}

const sha256WithEcdsa = '2a8648ce3d040302'
const time = (at: Date): Buffer => der(0x18, Buffer.from(`${at.toISOString().replace(/[-:T]|\.\d+/g, '')}`))
