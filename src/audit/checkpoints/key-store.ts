import type { Db } from '../../storage/open.ts'

/** Successions of the signing keys, oldest first. */
export async function listSuccessions(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('audit_keys')
    .select('succession')
    .where('succession', 'is not', null)
    .orderBy('created_at')
    .orderBy('public_key')
    .execute()
  return rows.flatMap(({ succession }) => succession ?? [])
}

/** Every public key that ever signed here, in base64. */
export async function listKeys(db: Db): Promise<string[]> {
  const rows = await db.selectFrom('audit_keys').select('public_key').orderBy('created_at').execute()
  return rows.map((row) => row.public_key)
}

export async function insertKey(tx: Db, publicKey: string, now: string): Promise<void> {
  await tx
    .insertInto('audit_keys')
    .values({ public_key: publicKey, succession: null, created_at: now })
    .onConflict((c) => c.column('public_key').doNothing())
    .execute()
}

/** A recorded succession is never overwritten: chain files exported in the past depend on it. */
export async function recordSuccession(tx: Db, publicKey: string, succession: string): Promise<void> {
  await tx
    .updateTable('audit_keys')
    .set({ succession })
    .where('public_key', '=', publicKey)
    .where('succession', 'is', null)
    .execute()
}
