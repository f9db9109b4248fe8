import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Instant } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import {
  type Checkpoint,
  openSuccession,
  signCheckpoint,
  signingKeyOf,
  signSuccession,
  trustedKeys,
} from './checkpoint.ts'
import { insertKey, listKeys, listSuccessions, recordSuccession } from './key-store.ts'

/** Signs for the service. No other component has access to its seed. */
export type Signer = {
  sign(checkpoint: Checkpoint): string
  /** The current key, then the previous one if it is configured. */
  publicKeys: readonly Buffer[]
  /** Signed successions of the keys, oldest first. */
  successions(): Promise<string[]>
  /** An HMAC for rows that the service stores for its own use; it cannot be computed without the seed. */
  mac(text: string): string
  /** Whether it was made with the current seed or the previous one. */
  verifyMac(text: string, mac: string): boolean
  /**
   * Every key that signed successions connect to the current one, the current one first. A database row alone
   * makes no key trusted.
   */
  trusted(): Promise<Buffer[]>
}

/** Recognizes what the service itself has made. */
export type MacKey = Pick<Signer, 'mac' | 'verifyMac'>

/**
 * Seeds of 32 bytes each (RFC 8032). With `isPreviousAssumed`, the previous seed only counts when it has signed
 * here. A previous seed that has not signed here, beside a current one that has, is the next one: other
 * processes already sign with it.
 */
export type SigningSeeds = { current: Buffer; previous: Buffer | undefined; isPreviousAssumed: boolean }

const publicKeyOf = (seed: Buffer): Buffer => signingKeyOf(seed, null).publicKey

export function createSigner(storage: Pick<Storage, 'read'>, { current, previous }: SigningSeeds): Signer {
  const publicKeys = [current, ...(previous ? [previous] : [])].map(publicKeyOf)
  const macs = [current, ...(previous ? [previous] : [])].map(createMac)
  const successions = () => listSuccessions(storage.read)
  return {
    sign: (checkpoint) => signCheckpoint(checkpoint, current),
    publicKeys,
    mac: (text) => macs[0]!(text).toString('base64'),
    verifyMac: (text, mac) => {
      const given = Buffer.from(mac, 'base64')
      return macs.some((own) => given.length === macBytes && timingSafeEqual(own(text), given))
    },
    successions,
    trusted: async () => trustedKeys(publicKeys.slice(0, 1), await successions()),
  }
}

/** Whether a signed succession leads from the key `of` to `key`. */
const isSuccessor = (key: string, of: string, successions: readonly string[]): boolean =>
  successions
    .flatMap((note) => openSuccession(note) ?? [])
    .some(({ from, to }) => to.toString('base64') === key && from.toString('base64') === of)

const macBytes = 32

/** Uses a key derived from the seed, so that no MAC can pass as a signature. */
function createMac(seed: Buffer): (text: string) => Buffer {
  const key = createHmac('sha256', seed).update('svc audit seal').digest()
  return (text) => createHmac('sha256', key).update(text).digest()
}

/**
 * Records which key signs from now on, and that it follows the previous one. Any number of processes may run
 * this at once. Returns the former keys, in base64, that no succession connects to the current one.
 */
export async function recordKeys(tx: Db, seeds: SigningSeeds, now: Instant): Promise<string[]> {
  const { current, previous, isPreviousAssumed: assumed } = seeds
  const [key, older] = [current, previous].map((seed) => seed && publicKeyOf(seed).toString('base64'))
  const known = await listKeys(tx)
  const isNext =
    older !== undefined &&
    known.includes(key!) &&
    (!known.includes(older) || isSuccessor(older, key!, await listSuccessions(tx)))
  const follows = older !== undefined && older !== key && !isNext && (!assumed || known.includes(older))
  if (follows) await insertKey(tx, older, now)
  await insertKey(tx, key!, now)
  if (follows) await recordSuccession(tx, key!, signSuccession(previous!, current, now))
  const trusted = trustedKeys([publicKeyOf(current)], await listSuccessions(tx))
  return known.filter((one) => !trusted.some((it) => it.toString('base64') === one))
}
