import { createPrivateKey, createPublicKey, generateKeyPairSync, hash, sign, verify } from 'node:crypto'

/*
 * The key pair of a device: Ed25519 (RFC 8032). The service knows the public key, and the device proves with the private
 * one who it is when its token is refused.
 */

/** Before the 32 bytes of a public key in its SPKI form (RFC 8410). */
const spki = Buffer.from('302a300506032b6570032100', 'hex')

/** A new private key as PKCS #8 in PEM. */
export const newDeviceKey = (): string =>
  generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }).toString()

/** The 32 bytes of the public key, in base64. */
export const devicePublicKey = (privateKey: string): string =>
  createPublicKey(createPrivateKey(privateKey))
    .export({ format: 'der', type: 'spki' })
    .subarray(spki.length)
    .toString('base64')

/** The fingerprint of a public key, by which people compare it, in the form of OpenSSH. */
export const deviceKeyFingerprint = (publicKey: string): string =>
  `SHA256:${hash('sha256', Buffer.from(publicKey, 'base64'), 'base64').replace(/=+$/, '')}`

/** What a device proves: that it is this agent, to this service, now. */
export type DeviceKeyProof = {
  agentId: string
  /** Public key of the service that the device enrolled with, in base64: a proof is of no use to another service. */
  service: string
  challenge: string
}

/** No line can contain a line feed, so that a text has one meaning. */
const textOf = ({ agentId, service, challenge }: DeviceKeyProof): Buffer =>
  Buffer.from(`svc agent proof\n${agentId}\n${service}\n${challenge}\n`)

export const signProof = (proof: DeviceKeyProof, privateKey: string): string =>
  sign(null, textOf(proof), createPrivateKey(privateKey)).toString('base64')

export function isProofOf(proof: DeviceKeyProof, signature: string, publicKey: string): boolean {
  const der = Buffer.concat([spki, Buffer.from(publicKey, 'base64')])
  const key = createPublicKey({ key: der, format: 'der', type: 'spki' })
  return verify(null, textOf(proof), key, Buffer.from(signature, 'base64'))
}
