import { createPrivateKey, generateKeyPair, type KeyObject, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import type { Cipher } from '../../core/cipher.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { createSelfSigned } from './certificate.ts'

/** The key that signs requests, shared by all processes and tenants of this installation. */
export type RequestSigningKey = {
  /** undefined when the service's keys cannot decrypt it. */
  key: KeyObject | undefined
  /** The private key as stored. */
  encrypted: string
  certificate: Buffer
}

/**
 * The row to store, with the private key encrypted. `replaces`: the stored private key, which nothing can decrypt any more.
 */
export type NewSigningKey = Tables['saml_keys'] & { replaces: string | undefined }

/* The key belongs to the service, not to a tenant. */
const id = 'requests'
const privateKeyAad = 'saml_keys.private_key'

/** The signing key; it is created once a provider needs signed requests, and again when its encryption key was lost. */
export async function findSigningKey(db: Db, cipher: Cipher): Promise<RequestSigningKey | undefined> {
  const row = await db.selectFrom('saml_keys').selectAll().where('id', '=', id).executeTakeFirst()
  if (!row) return undefined
  const pem = cipher.tryDecrypt(row.private_key, privateKeyAad)
  return {
    key: pem === undefined ? undefined : createPrivateKey(pem),
    encrypted: row.private_key,
    certificate: Buffer.from(row.certificate, 'base64'),
  }
}

export async function createSigningKey(
  cipher: Cipher,
  replaces: string | undefined,
  now: Instant,
): Promise<NewSigningKey> {
  const pair = await promisify(generateKeyPair)('rsa', { modulusLength: 3072 })
  const certificate = createSelfSigned(pair, { name: 'svc', serial: randomBytes(15), from: new Date(now) })
  const pem = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return {
    id,
    private_key: cipher.encrypt(pem, privateKeyAad),
    certificate: certificate.toString('base64'),
    created_at: now,
    replaces,
  }
}

/**
 * If two processes create one at once, the first one wins. The row of a replaced key is kept under another id, so that it
 * can be restored with its encryption key. Returns whether this one replaces another.
 */
export async function insertSigningKey(db: Db, { replaces, ...key }: NewSigningKey): Promise<boolean> {
  if (replaces !== undefined) {
    const { numUpdatedRows } = await db
      .updateTable('saml_keys')
      .set({ id: `${id}, until ${key.created_at}` })
      .where('id', '=', id)
      .where('private_key', '=', replaces)
      .executeTakeFirstOrThrow()
    if (numUpdatedRows === 0n) return false
  }
  await db
    .insertInto('saml_keys')
    .values(key)
    .onConflict((c) => c.column('id').doNothing())
    .execute()
  return replaces !== undefined
}
