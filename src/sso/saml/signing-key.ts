import { createPrivateKey, generateKeyPair, type KeyObject, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import type { Cipher } from '../../core/cipher.ts'
import type { Instant } from '../../core/time.ts'
import type { Db } from '../../storage/open.ts'
import type { Tables } from '../../storage/schema/tables.ts'
import { createSelfSigned } from './certificate.ts'

/** What this installation signs requests with: of all its processes, and of all tenants. */
export type RequestSigningKey = {
  /** undefined: it cannot be decrypted with the keys of the service. */
  key: KeyObject | undefined
  /** The same as it is stored. */
  sealed: string
  certificate: Buffer
}

/** The same as it is kept, sealed. */
export type SigningKeyRow = Tables['saml_keys']

/* The service's own, of no tenant. */
const id = 'requests'
const privateKeyAad = 'saml_keys.private_key'

/** There is one as soon as a provider is to be asked with it. */
export async function findSigningKey(db: Db, cipher: Cipher): Promise<RequestSigningKey | undefined> {
  const row = await db.selectFrom('saml_keys').selectAll().where('id', '=', id).executeTakeFirst()
  if (!row) return undefined
  const pem = cipher.tryOpen(row.private_key, privateKeyAad)
  return {
    key: pem === undefined ? undefined : createPrivateKey(pem),
    sealed: row.private_key,
    certificate: Buffer.from(row.certificate, 'base64'),
  }
}

export async function createSigningKey(cipher: Cipher, now: Instant): Promise<SigningKeyRow> {
  const pair = await promisify(generateKeyPair)('rsa', { modulusLength: 3072 })
  const certificate = createSelfSigned(pair, { name: 'svc', serial: randomBytes(15), from: new Date(now) })
  const pem = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return {
    ...{ id, private_key: cipher.seal(pem, privateKeyAad), certificate: certificate.toString('base64') },
    created_at: now,
  }
}

/** Of two processes that make one the first one's counts. */
export async function insertSigningKey(db: Db, key: SigningKeyRow): Promise<void> {
  await db
    .insertInto('saml_keys')
    .values(key)
    .onConflict((c) => c.column('id').doNothing())
    .execute()
}
