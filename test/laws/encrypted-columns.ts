import { encryptedColumns } from '../../src/core/encrypted-columns.ts'
import type { SecretName } from '../../src/core/secret-names.ts'
import type { AnyDb } from '../../src/storage/columns.ts'
import type { Storage } from '../../src/storage/open.ts'
import { schemaOf } from './schema.ts'

/** `by`: the secret that the hash is keyed with, which retires only when nothing needs it. Others are plain: why. */
export type Hashed = { by: SecretName } | { plain: string }

const randomToken = { plain: 'of a random token of 32 bytes, which nobody guesses' }
const publicBytes = { plain: 'of what is no secret' }
const chained = { plain: 'of what is no secret; what signs the end of a chain is AUDIT_SIGNING_KEY' }

/**
 * Each column that holds a hash, a fingerprint or a key. One that is keyed with a secret needs the former one while it is rotated:
 * `needOf` in daemon/secrets/rotation.ts says how long.
 */
export const hashedColumns: Readonly<Record<string, Hashed>> = {
  'agent_builds.checksum': publicBytes,
  'agent_keys.public_key': { plain: 'the public half of a key of a machine' },
  'agent_releases.manifest_signature': { plain: 'made by the key of a publisher' },
  'agent_releases.signing_key_id': { plain: 'of the public key of a publisher' },
  'agent_rotations.pending_token_hash': randomToken,
  'agent_rotations.pending_watchdog_hash': randomToken,
  'agent_rotations.previous_token_hash': randomToken,
  'agent_rotations.previous_watchdog_hash': randomToken,
  'api_keys.key_hash': randomToken,
  'api_keys.previous_hash': randomToken,
  'audit_anchors.checksum': chained,
  'audit_archives.sha256': publicBytes,
  'audit_heads.checksum': chained,
  'audit_keys.public_key': { by: 'AUDIT_SIGNING_KEY' },
  'audit_logs.checksum': chained,
  'audit_logs.prev_checksum': chained,
  'audit_tiles.hashes': chained,
  'device_authorizations.device_code_hash': randomToken,
  'device_authorizations.user_code_hash': { plain: 'of a code of some minutes, whose tries are limited' },
  'devices.agent_id': { plain: 'a random id' },
  'devices.token_hash': randomToken,
  'devices.watchdog_token_hash': randomToken,
  'enrollment_keys.key_hash': { by: 'ENROLLMENT_KEY_PEPPER' },
  'idempotency_keys.request_hash': { plain: 'the id of a request' },
  'invitations.token_hash': randomToken,
  'key_prints.print': { plain: 'of the secrets themselves, by HKDF: it tells two apart' },
  'login_challenges.token_hash': randomToken,
  'password_resets.token_hash': randomToken,
  'phone_codes.code_hash': { by: 'MFA_RECOVERY_CODE_PEPPER' },
  'rate_limit_windows.id': { by: 'MFA_RECOVERY_CODE_PEPPER' },
  'recovery_codes.hash': { by: 'MFA_RECOVERY_CODE_PEPPER' },
  'registrations.token_hash': randomToken,
  'service_processes.prints': { plain: 'of the secrets themselves, by HKDF: it tells two apart' },
  'sessions.previous_hash': randomToken,
  'sessions.token_hash': randomToken,
  'sso_assertions.id_hash': publicBytes,
  'sso_exchanges.challenge': { plain: 'of a random text of the client (RFC 7636)' },
  'sso_exchanges.code_hash': randomToken,
  'sso_sessions.browser_hash': randomToken,
  'sso_sessions.challenge': { plain: 'of a random text of the client (RFC 7636)' },
  'sso_sessions.state_hash': randomToken,
  'sso_tests.token_hash': randomToken,
  'svc_migrations.checksum': publicBytes,
  'trust_tokens.token_hash': { plain: 'of the id of a token that has been used' },
  'users.password_hash': { plain: 'Argon2id with a salt of its own' },
}

const encrypted = /v1\.[0-9a-f]{8}\.[\w-]{16}\.[\w-]{22}\./
/** Digests and keys in hex and base64, prefixes of digests, and hashed passwords. */
const hashed =
  /^([0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[\w+/-]{43}=?|\$argon2.*|sha256[:=-].*)$/is
const namedSo = /hash|prints?$|checksum|digest|sha256|fingerprint|challenge|signature|hmac|signing_key/

/** Rows of a table that are read. */
const maxRows = 20_000

export type Unlisted = { encrypted: string[]; hashed: string[] }

/** Columns of each kind that are on no list. A column counts by its name, too: it may be empty. */
export async function unlisted(storage: Storage): Promise<Unlisted> {
  const known = new Set(encryptedColumns.map(({ table, column }) => `${table}.${column}`))
  const found = { encrypted: new Set<string>(), hashed: new Set<string>() }
  for (const [table, { columns }] of Object.entries(await schemaOf(storage))) {
    const texts = columns.filter(({ kind }) => kind === 'text').map(({ name }) => name)
    const rows = await (storage.read as AnyDb).selectFrom(table).select(texts).limit(maxRows).execute()
    for (const column of texts) {
      const place = `${table}.${column}`
      const cells = rows.flatMap((row) => (typeof row[column] === 'string' ? [row[column]] : []))
      if (!known.has(place) && cells.some((cell) => encrypted.test(cell))) found.encrypted.add(place)
      const isHash = namedSo.test(column) || cells.some((cell) => hashed.test(cell))
      if (!(place in hashedColumns) && isHash) found.hashed.add(place)
    }
  }
  return { encrypted: [...found.encrypted].sort(), hashed: [...found.hashed].sort() }
}
