import { hkdfSync } from 'node:crypto'

/** Distinguishes keys, and reveals nothing else about a random key. */
export const keyFingerprint = (name: string, key: string | Buffer): string =>
  Buffer.from(hkdfSync('sha256', key, '', `svc key print ${name}`, 12)).toString('hex')
