import { createPrivateKey, createPublicKey, hash, type KeyObject, sign, verify } from 'node:crypto'

/**
 * Signed notes (C2SP signed-note) with Ed25519: a text of lines, an empty line, and a line for each signature:
 * `— <key name> <base64 of key id and signature>`. Pure.
 */

/** A public key: the name of the signer, and 32 bytes. */
export type VerifierKey = { name: string; publicKey: Buffer }

export type SigningKey = VerifierKey & { privateKey: KeyObject }

const ed25519 = 1
const spki = Buffer.from('302a300506032b6570032100', 'hex')
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex')

/** Decodes base64; undefined for a text that is not canonical base64. */
function bytesOf(base64: string | undefined): Buffer | undefined {
  const bytes = Buffer.from(base64 ?? '', 'base64')
  return bytes.toString('base64') === base64 ? bytes : undefined
}

/** The signing key of a 32-byte seed (RFC 8032) under a name. */
export function signingKey(name: string, seed: Uint8Array): SigningKey {
  const der = Buffer.concat([pkcs8, seed])
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
  const publicKey = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(spki.length)
  return { name, publicKey, privateKey }
}

/** The first four bytes of SHA-256 over name, newline, 0x01 and public key. */
export function keyId({ name, publicKey }: VerifierKey): Buffer {
  const bytes = Buffer.concat([Buffer.from(`${name}\n`), Buffer.from([ed25519]), publicKey])
  return hash('sha256', bytes, 'buffer').subarray(0, 4)
}

/** `<name>+<key id>+<base64 of 0x01 and public key>` */
export function verifierText(key: VerifierKey): string {
  const material = Buffer.concat([Buffer.from([ed25519]), key.publicKey])
  return `${key.name}+${keyId(key).toString('hex')}+${material.toString('base64')}`
}

/** Parses a line as verifierText writes it; undefined when it is not one. */
export function parseVerifier(text: string): VerifierKey | undefined {
  const [, name, id, material] = /^([^\s+]+)\+([0-9a-f]{8})\+(\S+)$/.exec(text.trim()) ?? []
  const bytes = bytesOf(material)
  if (!name || bytes?.length !== 33 || bytes[0] !== ed25519) return undefined
  const key = { name, publicKey: bytes.subarray(1) }
  return keyId(key).toString('hex') === id ? key : undefined
}

/** The note of a text, which must end with a newline. */
export function signNote(text: string, keys: readonly SigningKey[]): string {
  if (!text.endsWith('\n')) throw new RangeError('the text of a note ends with a newline')
  const lines = keys.map((key) => {
    const signature = sign(null, Buffer.from(text), key.privateKey)
    return `— ${key.name} ${Buffer.concat([keyId(key), signature]).toString('base64')}\n`
  })
  return `${text}\n${lines.join('')}`
}

type Signature = { name: string; keyId: Buffer; signature: Buffer }

export type Note = { text: string; signatures: Signature[] }

/** Parses a note into text and signatures; undefined when it is not a note. */
export function parseNote(note: string): Note | undefined {
  const end = note.lastIndexOf('\n\n')
  if (end === -1 || !note.endsWith('\n')) return undefined
  const lines = note.slice(end + 2, -1).split('\n')
  const signatures = lines.map((line) => {
    const [, name, encoded] = /^— ([^\s+]+) (\S+)$/.exec(line) ?? []
    const bytes = bytesOf(encoded)
    // Other kinds of signatures, such as those of witnesses, have other lengths.
    return name !== undefined && bytes !== undefined && bytes.length > 4
      ? { name, keyId: bytes.subarray(0, 4), signature: bytes.subarray(4) }
      : undefined
  })
  const known = signatures.filter((one) => one !== undefined)
  return known.length === lines.length ? { text: note.slice(0, end + 1), signatures: known } : undefined
}

/** Whether this key has signed a note. An invalid signature under its name and id rejects the note. */
export function isSignedBy({ text, signatures }: Note, key: VerifierKey): boolean {
  const id = keyId(key)
  const own = signatures.filter((one) => one.name === key.name && one.keyId.equals(id))
  const publicKey = createPublicKey({
    key: Buffer.concat([spki, key.publicKey]),
    format: 'der',
    type: 'spki',
  })
  return own.length > 0 && own.every(({ signature }) => verify(null, Buffer.from(text), publicKey, signature))
}
