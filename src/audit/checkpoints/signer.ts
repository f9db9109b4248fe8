import type { Instant } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import {
  type Checkpoint,
  keyOf,
  openSuccession,
  signCheckpoint,
  signSuccession,
  trustedKeys,
} from './checkpoint.ts'
import { listSuccessions } from './store.ts'

/** Signs for the service. Nothing else knows its seed. */
export type Signer = {
  sign(checkpoint: Checkpoint): string
  /** The current key, then the one before it, when it is given. */
  publicKeys: readonly Buffer[]
  /** How the keys followed each other, oldest first. */
  successions(): Promise<string[]>
  /** Every key that these vouch for, the current one first. A row of the database alone vouches for none. */
  trusted(): Promise<Buffer[]>
}

/** 32 bytes each (RFC 8032). */
export type Seeds = { current: Buffer; previous: Buffer | undefined }

const publicKeyOf = (seed: Buffer): Buffer => keyOf(seed, null).publicKey

export function signerOf(storage: Pick<Storage, 'read'>, { current, previous }: Seeds): Signer {
  const publicKeys = [current, ...(previous ? [previous] : [])].map(publicKeyOf)
  const successions = () => listSuccessions(storage.read)
  return {
    sign: (checkpoint) => signCheckpoint(checkpoint, current),
    publicKeys,
    successions,
    trusted: async () => trustedKeys(publicKeys, await successions()),
  }
}

/**
 * Writes down which key signs from now on, and that it follows the previous one. Any number of processes may do
 * so at once. Gives the keys of the past that nothing leads to from the current one.
 */
export async function recordKeys(tx: Db, seeds: Seeds, now: Instant): Promise<string[]> {
  const current = publicKeyOf(seeds.current)
  for (const key of [...(seeds.previous ? [publicKeyOf(seeds.previous)] : []), current]) {
    await tx
      .insertInto('audit_keys')
      .values({ public_key: key.toString('base64'), succession: null, created_at: now })
      .onConflict((c) => c.column('public_key').doNothing())
      .execute()
  }
  if (seeds.previous && !publicKeyOf(seeds.previous).equals(current)) await succeed(tx, seeds, now)
  const trusted = trustedKeys([current], await listSuccessions(tx)).map((key) => key.toString('base64'))
  const rows = await tx.selectFrom('audit_keys').select('public_key').orderBy('created_at').execute()
  return rows.map((row) => row.public_key).filter((key) => !trusted.includes(key))
}

async function succeed(tx: Db, { current, previous }: Seeds, now: Instant): Promise<void> {
  const [from, to] = [publicKeyOf(previous!), publicKeyOf(current)]
  const known = (await listSuccessions(tx)).map(openSuccession)
  if (known.some((one) => one?.from.equals(from) && one.to.equals(to))) return
  await tx
    .updateTable('audit_keys')
    .set({ succession: signSuccession(previous!, current, now) })
    .where('public_key', '=', to.toString('base64'))
    // What is recorded is never taken back: bundles of the past rest on it.
    .where('succession', 'is', null)
    .execute()
}
