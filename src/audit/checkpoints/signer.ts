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

/** Signs for the service. Nothing else knows its seed. */
export type Signer = {
  sign(checkpoint: Checkpoint): string
  /** The current key, then the one before it, when it is given. */
  publicKeys: readonly Buffer[]
  /** How the keys followed each other, oldest first. */
  successions(): Promise<string[]>
  /** A mark on what the service keeps in the database for itself, which nobody makes without its seed. */
  seal(text: string): string
  /** Whether a mark is one of its own, or of the key before. */
  isSealed(text: string, seal: string): boolean
  /** Every key that these vouch for, the current one first. A row of the database alone vouches for none. */
  trusted(): Promise<Buffer[]>
}

/**
 * 32 bytes each (RFC 8032). A previous one that is `isPreviousAssumed` only counts when it has signed here. One that has not, beside
 * a current one that has, is the next one: other processes sign with it before this one does.
 */
export type SigningSeeds = { current: Buffer; previous: Buffer | undefined; isPreviousAssumed: boolean }

const publicKeyOf = (seed: Buffer): Buffer => signingKeyOf(seed, null).publicKey

export function createSigner(storage: Pick<Storage, 'read'>, { current, previous }: SigningSeeds): Signer {
  const publicKeys = [current, ...(previous ? [previous] : [])].map(publicKeyOf)
  const sealers = [current, ...(previous ? [previous] : [])].map(createSealer)
  const successions = () => listSuccessions(storage.read)
  return {
    sign: (checkpoint) => signCheckpoint(checkpoint, current),
    publicKeys,
    seal: (text) => sealers[0]!(text).toString('base64'),
    isSealed: (text, seal) => {
      const said = Buffer.from(seal, 'base64')
      return sealers.some((own) => said.length === sealBytes && timingSafeEqual(own(text), said))
    },
    successions,
    trusted: async () => trustedKeys(publicKeys.slice(0, 1), await successions()),
  }
}

/** Whether the succession of a key is that of another one, which came before it. */
const isSuccessor = (key: string, of: string, successions: readonly string[]): boolean =>
  successions
    .flatMap((note) => openSuccession(note) ?? [])
    .some(({ from, to }) => to.toString('base64') === key && from.toString('base64') === of)

const sealBytes = 32

/** By a key of its own, derived from the seed: no mark is a signature of anything. */
function createSealer(seed: Buffer): (text: string) => Buffer {
  const key = createHmac('sha256', seed).update('svc audit seal').digest()
  return (text) => createHmac('sha256', key).update(text).digest()
}

/**
 * Writes down which key signs from now on, and that it follows the previous one. Any number of processes may do
 * so at once. Gives the keys of the past, in base64, that nothing leads to from the current one.
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
