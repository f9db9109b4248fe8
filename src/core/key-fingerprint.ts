import { hkdfSync } from 'node:crypto'

/** Tells one key from another, and of a random one nothing else. */
export const keyFingerprint = (name: string, key: string | Buffer): string =>
  Buffer.from(hkdfSync('sha256', key, '', `svc key print ${name}`, 12)).toString('hex')
