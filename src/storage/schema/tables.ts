import type { Generated, Selectable } from 'kysely'
import type {
  AgentBuildRow,
  AgentCommandRow,
  AgentKeyRow,
  AgentReleaseRow,
  AgentRolloutDeviceRow,
  AgentRolloutRow,
  AgentRotationRow,
  AgentTargetColumns,
  DeviceAgentColumns,
} from './agent-tables.ts'

/**
 * Every table, as both databases return it: ids, times and JSON are text, flags are 0 or 1. Times are ISO 8601 UTC
 * with milliseconds, so they compare as text.
 */
export type Tables = {
  /** The row that readiness updates. */
  probes: { id: number; at: string }
  /** Fingerprints of the keys that the database is used with (daemon/key-fingerprints.ts). */
  key_prints: { name: string; print: string; since: string }
  /** Archives that this installation wrote, by path or URL: retention removes no others. */
  backups: { place: string; made_at: string; bytes: number }
  /** A row for backups, and one for restore drills (daemon/backup/runs.ts). */
  backup_runs: BackupRunRow
  /** The processes that serve the database (src/storage/service-processes.ts). */
  service_processes: {
    id: string
    host: string
    pid: number
    started_at: string
    seen_at: number
    prints: string
  }
  /** Dead letters: entries that could not be written to their table. */
  set_aside: {
    id: Generated<number>
    source: string
    org_id: string | null
    entry: string
    reason: string
    created_at: string
  }
  /** Entries lost per source, because `set_aside` was full. */
  set_aside_lost: { source: string; count: number; reason: string; last_at: string }
  partners: PartnerRow
  organizations: OrganizationRow
  sites: SiteRow
  users: UserRow
  recovery_codes: { id: string; user_id: string; hash: string; used_at: string | null }
  mfa_setups: { user_id: string; content: string; expires_at: string }
  password_reset_requests: { id: string; email_key: string; created_at: string }
  password_resets: { user_id: string; token_hash: string; expires_at: string }
  registrations: { token_hash: string; content: string; expires_at: string }
  login_challenges: LoginChallengeRow
  device_authorizations: DeviceAuthorizationRow
  sessions: SessionRow
  /** Recent sign-in attempts for an account (src/identity/password-guard). */
  sign_in_marks: { door: string; marks: string; guarded_until: string | null; expires_at: string }
  /** Background work that one of several processes does (src/storage/leases.ts). */
  leases: { name: string; holder: string | null; epoch: number; expires_at: string }
  /** Windows of rate limits that all processes count together (daemon/shared-windows.ts). */
  rate_limit_windows: { id: string; events: string; expires_at: number }
  roles: RoleRow
  role_permissions: { role_id: string; permission: string }
  partner_memberships: PartnerMembershipRow
  partner_membership_orgs: { membership_id: string; org_id: string }
  organization_memberships: OrganizationMembershipRow
  organization_membership_sites: { membership_id: string; site_id: string }
  organization_membership_groups: { membership_id: string; group_id: string }
  invitations: InvitationRow
  enrollment_keys: EnrollmentKeyRow
  /** `revoked_at`: since when retention has found it revoked. */
  api_keys: ApiKeyRow & { revoked_at: Generated<string | null> }
  /** Requests of a key in buckets of 18 s (src/credentials/api-keys/rate-limit-window.ts). */
  api_key_buckets: { key_id: string; bucket: number; count: number }
  devices: DeviceRow & DeviceAgentColumns & DeviceCounts & { tags: Generated<string> }
  /** Also stored as JSON in the device's row. */
  device_tags: { device_id: string; tag: string }
  device_custom_fields: { device_id: string; key: string; value: string }
  device_groups: DeviceGroupRow
  device_group_devices: DeviceGroupDeviceRow
  device_group_changes: DeviceGroupChangeRow
  device_interfaces: DeviceInterfaceRow
  device_disks: DeviceDiskRow
  device_software: DeviceSoftwareRow
  saved_filters: SavedFilterRow
  scripts: ScriptRow
  alerts: AlertRow
  agent_logs: AgentLogRow
  device_event_logs: DeviceEventLogRow
  events: EventRow
  webhooks: WebhookRow
  /** What a webhook subscribes to: event types, or `*`. */
  webhook_events: { webhook_id: string; event: string; org_id: string }
  webhook_queues: WebhookQueueRow
  webhook_counts: WebhookCountRow
  /** Processes that send deliveries; what a process holds is free again once it is no longer alive. */
  webhook_workers: { id: string; alive_until: string }
  webhook_deliveries: WebhookDeliveryRow
  sso_providers: SsoProviderRow
  sso_sessions: SsoSessionRow
  sso_identities: SsoIdentityRow
  sso_exchanges: SsoExchangeRow
  sso_assertions: { id_hash: string; expires_at: string }
  sso_tests: SsoTestRow
  /** Keys that sign our own requests; the key encrypted, the certificate in base64. */
  saml_keys: { id: string; private_key: string; certificate: string; created_at: string }
  trust_policies: TrustPolicyRow
  config_sets: ConfigSetRow
  config_objects: ConfigObjectRow
  config_applies: ConfigurationApplyRow
  config_changes: ConfigurationChangeRow
  /** Where token issuers publish their keys. */
  trust_issuers: { issuer: string; jwks_url: string; discovered_at: string }
  /** Used tokens, until no check would accept them any more. */
  trust_tokens: { token_hash: string; expires_at: string }
  agent_links: AgentLinkRow
  agent_rotations: AgentRotationRow
  agent_keys: AgentKeyRow
  agent_commands: AgentCommandRow
  agent_releases: AgentReleaseRow
  agent_builds: AgentBuildRow
  agent_rollouts: AgentRolloutRow
  agent_rollout_devices: AgentRolloutDeviceRow
  live_questions: LiveQuestionRow
  outbox: { id: Generated<number>; chain: string; entry: string }
  audit_heads: { chain: string; seq: number; checksum: string }
  audit_logs: AuditLogRow
  /** Up to 256 hashes each, of tree level 8 × `level`, in base64. */
  audit_tiles: { chain: string; level: number; idx: number; hashes: string }
  audit_checkpoints: { chain: string; seq: number; note: string; created_at: string }
  /** Base64; `succession` is the statement signed by this key and the one before it. */
  audit_keys: { public_key: string; succession: string | null; created_at: string }
  audit_verdicts: AuditVerdictRow
  /** Chains that a process is signing, or could not sign a moment ago. */
  audit_checkpoint_claims: { chain: string; holder: string; claimed_until: string }
  audit_anchors: AuditAnchorRow
  audit_retention: AuditRetentionRow
  /** What was restored of each chain, signed (src/audit/checkpoints/restored.ts). */
  audit_restores: { chain: string; restored_at: string; note: string }
  audit_archives: AuditArchiveRow
  /** Readers of a whole chain, whose beginning must not be removed meanwhile. */
  audit_readings: { id: string; chain: string; until: string }
  idempotency_keys: IdempotencyKeyRow
  mails: MailRow
  phone_codes: PhoneCodeRow
}

export type TableName = keyof Tables

type Stamped = { id: string; created_at: string; updated_at: string }

export type BackupRunRow = {
  kind: 'backup' | 'drill'
  /** Scheduled runs that were due until then have been taken. */
  due_after: string | null
  /** The process that does the scheduled run, until `held_until` unless it says again that it lives. */
  holder: string | null
  held_until: string | null
  succeeded_at: string | null
  duration_ms: number | null
  bytes: number | null
  failed_at: string | null
  failure: string | null
  failures: Generated<number>
}

export type PartnerRow = Stamped & {
  name: string
  slug: string
  type: string
  plan: string
  status: string
  max_organizations: number | null
  max_devices: number | null
  settings: string
  sso_config: string | null
  billing_email: string | null
  deleted_at: string | null
}

export type OrganizationRow = Stamped & {
  partner_id: string
  name: string
  slug: string
  type: string
  status: string
  max_devices: number | null
  settings: string
  sso_config: string | null
  contract_start: string | null
  contract_end: string | null
  billing_contact: string | null
  deleted_at: string | null
}

export type SiteRow = Stamped & {
  org_id: string
  name: string
  address: string | null
  timezone: string
  contact: string | null
  settings: string
}

export type UserRow = Stamped & {
  email: string
  /** Folded form, which is unique. */
  email_key: string
  name: string
  status: string
  avatar_url: string | null
  is_system: number
  password_hash: string | null
  password_changed_at: string | null
  /** Both are read only by releases before migration 0033. */
  failed_logins: number
  locked_until: string | null
  /** Both are compared with the access token's on every request. */
  auth_epoch: number
  mfa_epoch: number
  mfa_method: string | null
  /** Encrypted. */
  totp_secret: string | null
  /** Last accepted 30 s step, so that a code works once. */
  totp_step: number
  phone_number: string | null
  phone_verified: number
  last_login_at: string | null
  /** Since when the holder is known to read the mail of the address. */
  email_proved_at: string | null
}

export type LoginChallengeRow = {
  id: string
  token_hash: string
  user_id: string
  /** The membership that the login requested, JSON. */
  context: string
  mfa_epoch: number
  expires_at: string
}

/** A sign-in that a person approves in a browser elsewhere (RFC 8628). What it grants is null until then. */
export type DeviceAuthorizationRow = {
  id: string
  device_code_hash: string
  user_code_hash: string
  /** What signs in, by its own account. */
  client: string
  ip: string
  /** pending, denied or approved. */
  status: string
  user_id: string | null
  /** The membership of the session that approved it, JSON. */
  context: string | null
  mfa: number | null
  sso_provider_id: string | null
  auth_epoch: number | null
  mfa_epoch: number | null
  proved_at: string | null
  ends_by: string | null
  created_at: string
  expires_at: string
}

/** One refresh-token family: a login. */
export type SessionRow = {
  id: string
  user_id: string
  context: string
  mfa: number
  token_hash: string
  previous_hash: string | null
  rotated_at: string
  created_at: string
  /** Absolute end of the family. */
  expires_at: string
  revoked_at: string | null
  /** The identity provider it was opened with. */
  sso_provider_id: string | null
  /** When its holder last proved their identity. */
  proved_at: string | null
}

export type RoleRow = Stamped & {
  partner_id: string | null
  org_id: string | null
  parent_role_id: string | null
  scope: string
  name: string
  description: string | null
  is_system: number
  force_mfa: number
}

/** Whether a membership is in force, and whom its tenant invited. */
type MembershipStanding = {
  /** null: its holder has not accepted it, and it grants nothing. */
  accepted_at: string | null
  /** `holder`: by their own proof. `provider`: by single sign-on of the organization. */
  accepted_by: string | null
  /** As the inviter typed it. */
  invited_name: string | null
  invited_email: string | null
}

export type PartnerMembershipRow = MembershipStanding & {
  id: string
  partner_id: string
  user_id: string
  role_id: string
  org_access: string
  created_at: string
  disabled_at: string | null
}

type OrganizationMembershipRow = MembershipStanding & {
  id: string
  org_id: string
  user_id: string
  role_id: string
  /** 1 when the membership is narrowed to the sites listed beside it. */
  narrowed: number
  created_at: string
  disabled_at: string | null
  /** 1 when the membership is narrowed to the device groups listed beside it. */
  grouped: Generated<number>
  /** 1 when an identity provider invited, not a person. */
  provisioned: Generated<number>
}

type InvitationRow = {
  id: string
  user_id: string
  tenant_kind: string
  tenant_id: string
  token_hash: string
  expires_at: string
  accepted_at: string | null
  created_at: string
  /** 1 when the inviter saw the link as well: it proves no address. */
  shown: Generated<number>
}

export type DeviceGroupRow = Stamped & {
  org_id: string
  site_id: string | null
  name: string
  type: Generated<string>
  /** The saved filter that selects the members of a dynamic group. */
  filter_id: string | null
  parent_id: string | null
  /** When the filter was last evaluated. */
  evaluated_at: string | null
  /** Why that evaluation failed. */
  evaluation_error: string | null
}

type DeviceGroupDeviceRow = {
  group_id: string
  device_id: string
  is_pinned: Generated<number>
  added_by: Generated<string>
  added_at: Generated<string>
}

export type DeviceGroupChangeRow = {
  id: string
  group_id: string
  device_id: string
  action: string
  reason: string
  created_at: string
}

export type SavedFilterRow = Stamped & {
  org_id: string
  name: string
  description: string | null
  /** JSON. */
  conditions: string
  created_by: string
}

/** A set of configuration files. */
type ConfigSetRow = {
  id: string
  partner_id: string
  /** null: the set of the partner. */
  org_id: string | null
  /** The tenant: whichever of the two it is. */
  owner: string
  name: string
  revision: string | null
  applied_at: string
  applied_by: string
}

/** An object that a set owns; the tenant is that of the object. */
type ConfigObjectRow = {
  object_id: string
  set_id: string
  section: string
  partner_id: string
  org_id: string | null
  /** What its files call it; null where files rename none of its kind. */
  name: string | null
  /** What it was called before its files renamed it. */
  renamed_from: string | null
}

/** What was applied from a set of files; its changes, encrypted, are in config_changes. */
export type ConfigurationApplyRow = {
  id: string
  partner_id: string
  org_id: string | null
  /** The tenant: whichever of the two it is. */
  owner: string
  set_name: string
  revision: string | null
  applied_at: string
  applied_by: string
  /** The apply that it rolled back. */
  rolls_back: string | null
  /** Of its changes; 0: they are not kept. */
  characters: number
  /** What it changed of the names and renamed_from of config_objects, in JSON. */
  names: string | null
}

/** One change of an apply. */
type ConfigurationChangeRow = {
  id: string
  apply_id: string
  position: number
  section: string
  action: string
  /** null: of the partner. */
  org_id: string | null
  /** Its values, encrypted; null: they are not kept. */
  content: string | null
}

export type EnrollmentKeyRow = {
  id: string
  org_id: string
  site_id: string | null
  name: string
  key_hash: string
  usage_count: number
  max_usage: number | null
  expires_at: string
  created_by: string
  created_at: string
  last_used_at: string | null
  last_device_id: string | null
}

export type ApiKeyRow = {
  id: string
  org_id: string
  name: string
  key_hash: string
  key_prefix: string
  /** The key before the last rotation, while both are valid. */
  previous_hash: string | null
  previous_until: string | null
  /** JSON list. */
  scopes: string
  expires_at: string | null
  rate_limit: number
  status: string
  created_by: string
  created_at: string
  last_used_at: string | null
  usage_count: number
}

export type DeviceRow = Stamped &
  DeviceHardwareColumns &
  DeviceMetricsColumns & {
    org_id: string
    site_id: string | null
    agent_id: string
    token_hash: string
    enrollment_key_id: string | null
    hostname: string
    /** Folded, like the other columns named so (src/core/fold.ts). */
    hostname_key: string
    display_name: string | null
    display_name_key: string | null
    os_type: string
    os_version: string
    os_build: string | null
    architecture: string
    agent_version: string
    status: string
    last_seen_at: string | null
    last_seen_ip: string | null
    enrollment_ip: string | null
    enrolled_at: string
    device_role: string
    /** auto: reported by the agent; or manual. */
    device_role_source: string
    is_virtual: number
    virtualization_platform: string | null
    is_headless: number
    last_user: string | null
    uptime_seconds: number | null
    pending_reboot: number
    pending_patches: number | null
    maintenance_until: string | null
    /** JSON. */
    maintenance_window: string | null
    quarantined_at: string | null
    quarantined_reason: string | null
    watchdog_status: string | null
  }

type DeviceCounts = {
  /** Number of log entries received from it, which is the sequence number of the last. */
  log_seq: Generated<number>
  /** Bytes of its logs that are kept. */
  log_bytes: Generated<number>
  /** Bytes of its command results that are kept. */
  command_bytes: Generated<number>
  /** JSON: addresses recently audited as new, with the time. */
  told_addresses: string | null
}

/** The columns that a heartbeat is compared with: the row of a device is wide, and each heartbeat reads these. */
export const agentDeviceColumns = [
  'id',
  'org_id',
  'hostname',
  'os_type',
  'os_version',
  'os_build',
  'architecture',
  'agent_version',
  'status',
  'device_role',
  'device_role_source',
  'is_virtual',
  'virtualization_platform',
  'is_headless',
  'last_user',
  'uptime_seconds',
  'pending_reboot',
  'last_seen_ip',
  'last_seen_at',
  'enrolled_at',
  'maintenance_window',
  'watchdog_status',
  'token_issued_at',
  'watchdog_version',
  'main_silent_since',
  'auto_update',
  'auto_update_acknowledged',
  'update_version',
  'update_state',
  'update_since',
  'update_reason',
] as const

/** With the state of its tenant and of waiting commands. */
export type AgentDeviceRow = Pick<
  Selectable<DeviceRow & DeviceAgentColumns>,
  (typeof agentDeviceColumns)[number]
> &
  AgentTargetColumns & {
    org_status: string
    partner_status: string
    /** 1 if commands wait for the agent or its watchdog. */
    has_commands: number | null
  }

/** As the agent last reported it; all null before that. */
export type DeviceHardwareColumns = {
  manufacturer: string | null
  model: string | null
  serial_number: string | null
  cpu_model: string | null
  cpu_cores: number | null
  cpu_threads: number | null
  ram_total_mb: number | null
  disk_total_gb: number | null
  gpu_model: string | null
  motherboard_manufacturer: string | null
  motherboard_model: string | null
  bios_version: string | null
}

/** The latest sample; `metrics_at` is null before there is one. */
export type DeviceMetricsColumns = {
  metrics_at: string | null
  cpu_percent: number | null
  ram_percent: number | null
  ram_used_mb: number | null
  disk_percent: number | null
  disk_used_gb: number | null
  process_count: number | null
}

export type DeviceInterfaceRow = {
  device_id: string
  position: number
  interface_name: string
  mac_address: string | null
  ip_address: string | null
  ip_type: string | null
  is_primary: number
  public_ip: string | null
}

export type DeviceDiskRow = {
  device_id: string
  position: number
  mount_point: string
  device: string | null
  fs_type: string | null
  total_gb: number | null
  used_gb: number | null
  free_gb: number | null
  used_percent: number | null
  health: string | null
}

export type DeviceSoftwareRow = {
  device_id: string
  position: number
  name: string
  name_key: string
  version: string | null
  publisher: string | null
  install_date: string | null
  install_location: string | null
}

export type ScriptRow = Stamped & {
  org_id: string | null
  partner_id: string | null
  name: string
  name_key: string
  description: string | null
  description_key: string | null
  category: string | null
  /** JSON list. */
  os_types: string
  language: string
  content: string
  /** JSON. */
  parameters: string | null
  timeout_seconds: number
  run_as: string
  is_system: number
  /** Incremented when the content changes. */
  version: number
  created_by: string | null
  deleted_at: string | null
}

export type AlertRow = Stamped & {
  org_id: string
  device_id: string | null
  rule_id: string | null
  status: string
  severity: string
  title: string
  title_key: string
  message: string | null
  message_key: string | null
  /** JSON. */
  context: string | null
  triggered_at: string
  acknowledged_at: string | null
  acknowledged_by: string | null
  escalated_at: string | null
  escalated_by: string | null
  resolved_at: string | null
  resolved_by: string | null
  resolution_note: string | null
}

export type AuditVerdictRow = {
  chain: string
  verdict: string
  /** JSON: what is not sound. */
  fault: string | null
  entries: number
  checked_at: string
  /** The MAC of the service over the rest of the row, but for the last column. */
  seal: string | null
  /** When the chain was last verified to its end, for metrics alone. */
  verified_at: string | null
}

export type AuditLogRow = {
  chain: string
  seq: number
  id: string
  checksum: string
  prev_checksum: string
  /** RFC 8785 text of the entry: what the checksum covers and readers see. */
  canonical: string
  /** Copies of fields inside `canonical`, for filters only. */
  timestamp: string
  actor_id: string
  actor_email: string | null
  action: string
  resource_type: string
  resource_id: string | null
  resource_name: string | null
  result: string
}

/** Where a chain begins after retention removed older entries. */
type AuditAnchorRow = {
  chain: string
  /** The newest entry that was removed. */
  seq: number
  checksum: string
  pruned_count: number
  /** The anchor, signed. */
  note: string
  /** The perfect trees of the removed entries, largest first: JSON list of base64. */
  tree: string
  created_at: string
}

/** A chain without a row has the defaults. */
export type AuditRetentionRow = {
  chain: string
  retention_days: number
  archive_to_s3: number
  last_cleanup_at: string | null
  hold_reason: string | null
  hold_by: string | null
  hold_email: string | null
  held_at: string | null
  error: string | null
  error_at: string | null
  /** Failed runs since the last successful one. */
  failures: number
  retry_at: string | null
  /** The process that removes entries at present, and until when no other may. */
  lease: string | null
  leased_until: string | null
  /** The last entry of the object being archived, so that it is the same object after a crash. */
  archiving_to: number | null
}

/** A part of a chain that is archived elsewhere. */
type AuditArchiveRow = {
  chain: string
  first_seq: number
  last_seq: number
  object_key: string
  bytes: number
  sha256: string
  created_at: string
}

type IdempotencyKeyRow = {
  /** The caller and its tenant. */
  owner: string
  key: string
  /** The request that holds the key; in earlier releases a hash of its content, which is now kept with the reply. */
  request_hash: string
  /** The content of the request and the reply, encrypted; empty while the first request is still running. */
  reply: string
  /** Used by earlier releases. */
  status: number
  created_at: string
}

type MailRow = {
  id: string
  kind: string
  /** The mail, encrypted: it may hold a link that sets a password. */
  content: string
  attempts: number
  /** When it is tried next; while it is being sent, when the claim ends. */
  due_at: string
  /** Names the current claim. */
  lease: string | null
  expires_at: string
  created_at: string
}

type PhoneCodeRow = {
  phone_number: string
  code_hash: string
  tries: number
  expires_at: string
}

type LogRow = {
  id: string
  device_id: string
  org_id: string
  timestamp: string
  level: string
  message: string
  created_at: string
  /** Sequence number among all log entries of the device, of both kinds. */
  seq: number
}

export type AgentLogRow = LogRow & {
  component: string
  /** JSON */
  fields: string | null
  agent_version: string | null
}

export type DeviceEventLogRow = LogRow & {
  category: string
  source: string
  event_id: string | null
  /** JSON */
  details: string | null
}

type AgentLinkRow = {
  device_id: string
  link_id: string
  /** The process where the connection ends. */
  holder: string
  created_at: string
}

export type LiveQuestionRow = {
  id: string
  device_id: string
  holder: string
  /** The process that waits for the outcome. */
  asker: string
  /** JSON */
  question: string
  /** JSON, once there is one. */
  outcome: string | null
  created_at: string
}

/** An event, until it is fanned out to the webhooks that subscribe to it. */
type EventRow = {
  seq: Generated<number>
  id: string
  org_id: string
  type: string
  /** JSON. */
  data: string
  created_at: string
  /** The last webhook that got it, if one transaction did not reach all of them. */
  given_to: string | null
}

export type WebhookRow = Stamped & {
  org_id: string
  name: string
  /** Encrypted, like the secrets and `headers`, a JSON list of key and value. */
  url: string
  secret: string | null
  previous_secret: string | null
  previous_until: string | null
  headers: string
  /** active, disabled or error. */
  status: string
  /** Why the service itself paused it; earlier releases leave it when they resume the webhook. */
  status_reason: Generated<string | null>
  /** JSON; null: the default. */
  retry_policy: string | null
  created_by: string
  /** Its deliveries are deleted in the background, and then the webhook. */
  deleted_at: string | null
}

type WebhookQueueRow = {
  webhook_id: string
  org_id: string
  /** When its first delivery is due. */
  due_at: string | null
  /** The process that currently sends them. */
  holder: string | null
  last_seq: number
}

export type WebhookCountRow = {
  webhook_id: string
  /** Both count attempts. */
  success_count: number
  failure_count: number
  last_delivery_at: string | null
  last_success_at: string | null
}

export type WebhookDeliveryRow = {
  id: string
  webhook_id: string
  org_id: string
  /** Number among the deliveries of its webhook, from 1. */
  seq: number
  event: string
  event_id: string
  event_at: string
  /** JSON. */
  payload: string
  status: string
  /** 1: a person requested it, so it is sent whatever the state of its webhook. */
  asked_for: number
  /** Attempts made. */
  attempt: number
  /** When the next attempt is due; null: there is none. */
  due_at: string | null
  response_status: number | null
  response_body: string | null
  response_time_ms: number | null
  error_message: string | null
  failure_class: string | null
  created_at: string
  delivered_at: string | null
  /** When it arrived, or failed for good. */
  ended_at: string | null
  /** The delivery that this one repeats on request. */
  retry_of: string | null
}

export type SsoProviderRow = Stamped & {
  org_id: string
  /** For SAML: one of the formats that the contract names. */
  name_id_format: string | null
  force_authn: number
  sign_requests: number
  /** JSON: the permissions of the user who configured it. */
  vouches: string
  vouched_by: string | null
  name: string
  /** oidc or saml. */
  type: string
  /** inactive, testing or active. */
  status: string
  preset: string | null
  issuer: string | null
  client_id: string | null
  /** Encrypted. */
  client_secret: string | null
  /** client_secret_basic or client_secret_post; null: the former. */
  token_auth: string | null
  authorization_url: string | null
  token_url: string | null
  user_info_url: string | null
  jwks_url: string | null
  scopes: string
  entity_id: string | null
  sso_url: string | null
  /** PEM. */
  certificate: string | null
  /** JSON. */
  attribute_mapping: string
  auto_provision: number
  default_role_id: string | null
  /** Separated by commas; null: all. */
  allowed_domains: string | null
  enforce_sso: number
  created_by: string
}

/** A sign-in under way at a provider. */
export type SsoSessionRow = {
  state_hash: string
  provider_id: string
  nonce: string
  /** Encrypted. */
  code_verifier: string
  redirect_path: string
  /** Hash of the cookie of the browser in which it began. */
  browser_hash: string | null
  /** Hash of what a client must know to exchange the final code. */
  challenge: string | null
  /** The provider's `updated_at` when it began. */
  provider_version: string | null
  /** The test of the provider that this sign-in is part of. */
  test_id: string | null
  created_at: string
  expires_at: string
}

/** A code that can be exchanged for tokens, once. */
export type SsoExchangeRow = {
  code_hash: string
  provider_id: string
  user_id: string
  mfa: number
  challenge: string | null
  created_at: string
  expires_at: string
}

/** A test of a provider by one of its administrators. */
export type SsoTestRow = {
  id: string
  provider_id: string
  token_hash: string
  redirect_path: string
  /** pending, passed or failed. */
  status: string
  /** JSON: the steps taken and what was received. */
  steps: string
  created_at: string
  expires_at: string
}

/** The user that a subject of a provider is here. */
export type SsoIdentityRow = Stamped & {
  provider_id: string
  user_id: string
  external_id: string
  email: string
  /** JSON: all that the provider reported about them. */
  profile: string
  /** Encrypted, like the next. */
  access_token: string | null
  refresh_token: string | null
  token_expires_at: string | null
  last_login_at: string
}

export type TrustPolicyRow = Stamped & {
  org_id: string
  name: string
  issuer: string
  audience: string
  /** JSON. */
  claims: string
  /** One of the claims, `name=value`, which leads from a token to the policy (src/trust/rules.ts). */
  lead: string
  /** JSON. */
  permissions: string
  max_usage: number
  max_ttl_minutes: number
  /** active or inactive. */
  status: string
  version: number
  created_by: string
  last_used_at: string | null
}
