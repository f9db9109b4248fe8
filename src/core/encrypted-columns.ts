/**
 * Every column that holds encrypted values; `row`: the columns that name the row in a value's authenticated context. The cipher
 * accepts the contexts of these columns alone, so that what has to know all of them (key rotation, `svc doctor`) does.
 */
export const encryptedColumns = [
  { table: 'users', column: 'totp_secret', row: ['id'] },
  { table: 'mfa_setups', column: 'content', row: ['user_id'] },
  { table: 'registrations', column: 'content', row: ['token_hash'] },
  { table: 'webhooks', column: 'url', row: ['id'] },
  { table: 'webhooks', column: 'headers', row: ['id'] },
  { table: 'webhooks', column: 'secret', row: ['id'] },
  { table: 'webhooks', column: 'previous_secret', row: ['id'] },
  { table: 'sso_providers', column: 'client_secret', row: ['id'] },
  { table: 'sso_sessions', column: 'code_verifier', row: ['state_hash'] },
  { table: 'sso_identities', column: 'access_token', row: ['id'] },
  { table: 'sso_identities', column: 'refresh_token', row: ['id'] },
  { table: 'saml_keys', column: 'private_key', row: [] },
  { table: 'idempotency_keys', column: 'reply', row: ['owner', 'key'] },
  { table: 'mails', column: 'content', row: ['id'] },
  { table: 'config_changes', column: 'content', row: ['id'] },
] as const satisfies readonly EncryptedColumn[]

export type EncryptedColumn = { table: string; column: string; row: readonly string[] }

type ContextOf<C> = C extends { table: infer T extends string; column: infer N extends string; row: infer R }
  ? R extends readonly []
    ? `${T}.${N}`
    : `${T}.${N}.${string}`
  : never

/** `table.column.row`: where an encrypted value is. A value that is copied to another place does not open. */
export type EncryptionContext = ContextOf<(typeof encryptedColumns)[number]>
