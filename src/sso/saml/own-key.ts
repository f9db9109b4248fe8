import { createPrivateKey, generateKeyPair, type KeyObject, randomBytes } from 'node:crypto'
import { promisify } from 'node:util'
import type { Cipher } from '../../core/cipher.ts'
import type { Instant } from '../../core/time.ts'
import type { Db, Storage } from '../../storage/open.ts'
import { selfSigned } from './certificate.ts'

/** What this installation signs requests with: of all its processes, and of all tenants. */
export type OwnKey = { key: KeyObject; certificate: Buffer }

/* The service's own, of no tenant. */
const id = 'requests'
const place = 'saml_keys.private_key'

/** Made when it is first asked for; of two processes that make one, the first one's counts. */
export async function ownKey(storage: Storage, cipher: Cipher, now: Instant): Promise<OwnKey> {
  const known = await find(storage.read, cipher)
  if (known) return known
  const pair = await promisify(generateKeyPair)('rsa', { modulusLength: 3072 })
  const certificate = selfSigned(pair, { name: 'svc', serial: randomBytes(15), from: new Date(now) })
  const row = {
    id,
    private_key: cipher.seal(pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), place),
    certificate: certificate.toString('base64'),
    created_at: now,
  }
  return storage.write(async (tx) => {
    await tx
      .insertInto('saml_keys')
      .values(row)
      .onConflict((c) => c.column('id').doNothing())
      .execute()
    return (await find(tx, cipher))!
  })
}

async function find(db: Db, cipher: Cipher): Promise<OwnKey | undefined> {
  const row = await db.selectFrom('saml_keys').selectAll().where('id', '=', id).executeTakeFirst()
  return (
    row && {
      key: createPrivateKey(cipher.open(row.private_key, place)),
      certificate: Buffer.from(row.certificate, 'base64'),
    }
  )
}
