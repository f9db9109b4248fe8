import type { TableName } from '../../src/storage/schema/tables.ts'
import { archiveTargets, smsProviders } from '../integrations/providers.ts'

/**
 * What becomes of a table or a file in a backup.
 * - kept: its rows or bytes are in the archive, and restored
 * - derived: made anew from what is kept
 * - excluded: lives too short, or would bring something back that has ended
 */
export type BackupPolicy = readonly ['kept' | 'derived' | 'excluded', reason: string]

/** Every table of the schema. A test compares it with the tables of both databases. */
export const tables: Readonly<Record<TableName, BackupPolicy>> = {
  agent_builds: ['kept', 'which files of a release are offered to machines'],
  agent_commands: ['kept', 'history; those that are open are ended by a restore, so that none runs twice'],
  agent_keys: ['kept', 'public keys of machines, by which they get new tokens after a restore'],
  agent_links: ['excluded', 'which process holds the connection of an agent'],
  agent_logs: ['kept', 'logs'],
  agent_releases: ['kept', 'signed manifests'],
  agent_rollout_devices: ['kept', 'the part of each device in a rollout'],
  agent_rollouts: ['kept', 'a restore halts the one that is under way'],
  agent_rotations: ['kept', 'new and previous tokens of agents, which keep them'],
  alerts: ['kept', 'records of people and agents'],
  api_key_buckets: ['kept', 'recent requests, of which a restore gives nobody more'],
  api_keys: ['kept', 'credentials of programs'],
  audit_anchors: ['kept', 'where a chain begins'],
  audit_archives: ['kept', 'which parts of a chain are archived elsewhere'],
  audit_checkpoint_claims: ['excluded', 'which process signs which chain'],
  audit_checkpoints: ['kept', 'what was signed of each chain'],
  audit_heads: ['kept', 'the end of each chain'],
  audit_keys: ['kept', 'which keys signed, and which followed which'],
  audit_logs: ['kept', 'the audit log'],
  audit_readings: ['excluded', 'leases of readers that are gone'],
  audit_restores: ['kept', 'signed statements of restores, which explain what is missing'],
  audit_retention: ['kept', 'policies and holds; a restore ends the leases in it'],
  audit_tiles: ['kept', 'the tree over all entries, removed ones included'],
  audit_verdicts: ['derived', 'each chain is verified again within a day'],
  backup_runs: ['excluded', 'what this installation backed up and drilled, which another has not'],
  backups: ['excluded', 'archives of this installation, which a copy of it must not remove'],
  config_applies: ['kept', 'what was applied from files'],
  config_changes: ['kept', 'encrypted values that a rollback of an apply needs'],
  config_objects: ['kept', 'which objects belong to which files'],
  config_sets: ['kept', 'sets of configuration files'],
  device_custom_fields: ['kept', 'records of people'],
  device_disks: ['kept', 'inventory'],
  device_event_logs: ['kept', 'logs'],
  device_group_changes: ['kept', 'history of groups'],
  device_group_devices: ['kept', 'members of groups'],
  device_groups: ['kept', 'records of people'],
  device_interfaces: ['kept', 'inventory'],
  device_software: ['kept', 'inventory'],
  device_tags: ['kept', 'records of people'],
  devices: ['kept', 'devices, with the hashes of the tokens of their agents'],
  enrollment_keys: ['kept', 'credentials of machines to be enrolled'],
  events: ['excluded', 'the service that was backed up has handed them to webhooks since'],
  idempotency_keys: ['kept', 'what was done with a key is in the archive too, and must not be done again'],
  invitations: ['kept', 'links that people were sent'],
  key_prints: ['kept', 'fingerprints of the keys that the rows need'],
  leases: ['excluded', 'which process does which background work'],
  live_questions: ['excluded', 'questions that a process waits for'],
  device_authorizations: ['excluded', 'sign-ins of terminals that wait for an approval'],
  login_challenges: ['excluded', 'sign-ins that wait for a second factor'],
  mails: ['excluded', 'the service that was backed up has sent them since; their links may be used up'],
  mfa_setups: ['excluded', 'second factors that were not confirmed yet'],
  organization_membership_groups: ['kept', 'what members are narrowed to'],
  organization_membership_sites: ['kept', 'what members are narrowed to'],
  organization_memberships: ['kept', 'who may do what'],
  organizations: ['kept', 'tenants'],
  outbox: ['kept', 'audit entries that wait to be sealed'],
  partner_membership_orgs: ['kept', 'what members are limited to'],
  partner_memberships: ['kept', 'who may do what'],
  partners: ['kept', 'tenants'],
  password_reset_requests: ['kept', 'recent requests, of which a restore gives nobody more'],
  password_resets: ['excluded', 'a link that was used since would work again'],
  phone_codes: ['excluded', 'codes of some minutes'],
  probes: ['derived', 'the row that readiness updates; a migration makes it'],
  rate_limit_windows: ['kept', 'recent attempts, of which a restore gives nobody more'],
  recovery_codes: ['kept', 'hashes of the codes that people have'],
  registrations: ['excluded', 'links that confirm a registration, of a day'],
  role_permissions: ['kept', 'roles'],
  roles: ['kept', 'roles'],
  saml_keys: ['kept', 'encrypted keys that identity providers know'],
  saved_filters: ['kept', 'records of people'],
  scripts: ['kept', 'records of people'],
  service_processes: ['excluded', 'processes that served the database'],
  sessions: ['excluded', 'one that ended since would live again: everybody signs in anew'],
  set_aside: ['kept', 'dead letters'],
  set_aside_lost: ['kept', 'counts of lost dead letters'],
  sign_in_marks: ['kept', 'recent wrong passwords, which stop guessing'],
  sites: ['kept', 'records of people'],
  sso_assertions: ['kept', 'used assertions, which must not be used again'],
  sso_exchanges: ['excluded', 'codes that end a sign-in'],
  sso_identities: ['kept', 'who a subject of a provider is here'],
  sso_providers: ['kept', 'records of people'],
  sso_sessions: ['excluded', 'sign-ins that are under way at a provider'],
  sso_tests: ['excluded', 'tests that are under way at a provider'],
  trust_issuers: ['kept', 'where token issuers publish their keys'],
  trust_policies: ['kept', 'which jobs are trusted'],
  trust_tokens: ['kept', 'used tokens, which must not be used again'],
  users: ['kept', 'accounts'],
  webhook_counts: ['kept', 'counts of attempts'],
  webhook_deliveries: ['kept', 'history; those that wait are ended by a restore'],
  webhook_events: ['kept', 'what webhooks subscribe to'],
  webhook_queues: ['kept', 'the number of the last delivery of each webhook'],
  webhook_workers: ['excluded', 'processes that send deliveries'],
  webhooks: ['kept', 'a restore pauses them'],
}

/** Tables that the databases or the migrations keep for themselves. */
export const ownTables: readonly (readonly [name: RegExp, ...BackupPolicy])[] = [
  [/^svc_migrations$/, 'derived', 'a restore applies the same migrations'],
  [/_trigrams(_|$)/, 'derived', 'search indexes of SQLite, which follow their tables'],
  [/^svc_oldest_version$/, 'derived', 'a restore applies the same migrations, which raise it'],
  [/^svc_restore$/, 'excluded', 'the mark of a restore that is under way'],
  [/^svc_copy(_chunks)?$/, 'excluded', 'how far a copy into the database is'],
  [/^svc_moved$/, 'excluded', 'where the database was moved, since when it takes no changes'],
]

const inFile = 'with --with-secrets only, where it is in secrets.json, and then encrypted'
const ofPlace = 'a way in from this machine, which another one has of its own'
const ofProviders = [...smsProviders, ...archiveTargets].flatMap(({ secrets }) => secrets)

/**
 * Every secret that `svc serve` reads, by its setting. `_PREVIOUS` goes with its secret. A test compares it with what reading the
 * settings looks up.
 */
export const secrets: Readonly<Record<string, BackupPolicy>> = {
  AGENT_BINARY_S3_ACCESS_KEY_ID: ['excluded', ofPlace],
  AGENT_BINARY_S3_SECRET_ACCESS_KEY: ['excluded', ofPlace],
  AGENT_ENROLLMENT_SECRET: ['excluded', 'nothing is derived from it: machines present it'],
  APP_ENCRYPTION_KEY: ['kept', inFile],
  AUDIT_SIGNING_KEY: ['kept', inFile],
  BACKUP_S3_ACCESS_KEY_ID: ['excluded', ofPlace],
  BACKUP_S3_SECRET_ACCESS_KEY: ['excluded', ofPlace],
  DATABASE_DIRECT_URL: ['excluded', ofPlace],
  DATABASE_URL: ['excluded', ofPlace],
  DRILL_IDENTITY: ['excluded', 'what opens the archives must not be in them'],
  ENROLLMENT_KEY_PEPPER: ['kept', inFile],
  JWT_SECRET: ['kept', inFile],
  METRICS_TOKEN: ['kept', inFile],
  MFA_RECOVERY_CODE_PEPPER: ['kept', inFile],
  RELEASE_API_TOKEN: ['excluded', ofPlace],
  SECRET_ENCRYPTION_KEY: ['excluded', 'another name of APP_ENCRYPTION_KEY in the environment'],
  SMTP_PASSWORD: ['excluded', ofPlace],
  SMTP_URL: ['excluded', ofPlace],
  SVC_ADMIN_PASSWORD: ['excluded', 'of the first start: accounts are in the archive'],
  ...Object.fromEntries(ofProviders.map((name) => [name, ['excluded', ofPlace] as const])),
}

/** What `svc serve` writes into the data directory, by the path within it. */
export const files: readonly (readonly [path: RegExp, ...BackupPolicy])[] = [
  [/^svc\.sqlite(-wal|-shm)?$/, 'derived', 'the rows of the database are in the archive'],
  [/^svc\.sqlite\.restore(-wal|-shm)?$/, 'excluded', 'the beginning of a restore'],
  [/^svc\.lock$/, 'excluded', 'the lock of the process that serves the directory'],
  [/^drill(\/|$)/, 'excluded', 'what a restore drill works with'],
  [/^rehearsal-\w+(\/|$)/, 'excluded', 'what a rehearsal of an upgrade works with'],
  [/^svc\.copy$/, 'excluded', 'the lock of the last part of a copy'],
  [/^checkpoints\/(system|[0-9a-f-]{36})$/, 'kept', 'the last checkpoint of each audit chain'],
  [/^checkpoints\/[^/]+\.[0-9a-f-]{36}$/, 'excluded', 'a draft of a checkpoint'],
  [
    /^outbox\/[^./][^/]*\.json$/,
    'excluded',
    'mail that was written instead of sent: its links set passwords',
  ],
  [/^outbox\/\.[^/]+$/, 'excluded', 'a draft of a mail'],
  [/^secrets\.json$/, 'kept', 'with --with-secrets only, and then encrypted'],
  [/^secrets\.json\.\d+$/, 'excluded', 'a draft of secrets.json'],
  [
    /^first-password$/,
    'excluded',
    'signs in once as the first administrator, who changes it and deletes the file',
  ],
  [/^secrets\.json\.lock$/, 'excluded', 'the lock of a command that changes secrets.json'],
]

/** Folders that an empty target does not have files in. */
export const keptFolders = ['checkpoints'] as const

export const isKept = (table: string): boolean => tables[table as TableName]?.[0] === 'kept'
export const isExcluded = (table: string): boolean => tables[table as TableName]?.[0] === 'excluded'

/** Whether a file of the data directory belongs into an archive; secrets.json is decided by its flag. */
export const isKeptFile = (path: string): boolean =>
  files.some(([pattern, handling]) => handling === 'kept' && pattern.test(path))

/** Whether a file goes along when the whole installation moves: what waits in the outbox, too. */
export const isMovedFile = (path: string): boolean =>
  isKeptFile(path) || /^outbox\/[^./][^/]*\.json$/.test(path)

/** What processes on the source hold for some time: those on the target would wait until it expires. */
const heldByProcesses = ['leases', 'audit_checkpoint_claims']

/** Whether a table holds what was written, and is no index or ledger that the target makes by itself. */
export const isMoved = (table: string): boolean => table in tables && !heldByProcesses.includes(table)
