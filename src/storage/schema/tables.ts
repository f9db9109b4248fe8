import type { Generated, Selectable } from 'kysely'
import type {
  AgentBuildRow,
  AgentCommandRow,
  AgentReleaseRow,
  AgentRolloutDeviceRow,
  AgentRolloutRow,
  AgentRotationRow,
  AgentTargetColumns,
  DeviceAgentColumns,
} from './agent-tables.ts'

/**
 * Every table, as both databases hand it back: ids, times and JSON are text, flags are 0 or 1.
 * Times are ISO 8601 UTC with milliseconds, so they compare as text.
 */
export type Tables = {
  /** What readiness changes. */
  probes: { id: number; at: string }
  /** Which keys the database is used with (daemon/key-fingerprints.ts). */
  key_prints: { name: string; print: string; since: string }
  /** What could not be written where it belongs. */
  set_aside: {
    id: Generated<number>
    source: string
    org_id: string | null
    entry: string
    reason: string
    created_at: string
  }
  /** How much of each source was not kept there, because it was full. */
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
  sessions: SessionRow
  /** What happened at the door of an account lately (src/identity/password-guard). */
  sign_in_marks: { door: string; marks: string; guarded_until: string | null; expires_at: string }
  roles: RoleRow
  role_permissions: { role_id: string; permission: string }
  partner_memberships: PartnerMembershipRow
  partner_membership_orgs: { membership_id: string; org_id: string }
  organization_memberships: OrganizationMembershipRow
  organization_membership_sites: { membership_id: string; site_id: string }
  organization_membership_groups: { membership_id: string; group_id: string }
  invitations: InvitationRow
  enrollment_keys: EnrollmentKeyRow
  api_keys: ApiKeyRow
  /** What a key used of its limit, in 18 s each (src/credentials/api-keys/rate-limit-window.ts). */
  api_key_buckets: { key_id: string; bucket: number; count: number }
  devices: DeviceRow & DeviceAgentColumns & DeviceCounts & { tags: Generated<string> }
  /** In JSON they stand in the row of the device as well. */
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
  /** What a webhook asked for: event types, or `*`. */
  webhook_events: { webhook_id: string; event: string; org_id: string }
  webhook_queues: WebhookQueueRow
  webhook_counts: WebhookCountRow
  /** Processes that send deliveries; what one of them holds is free again when it is no longer alive. */
  webhook_workers: { id: string; alive_until: string }
  webhook_deliveries: WebhookDeliveryRow
  sso_providers: SsoProviderRow
  sso_sessions: SsoSessionRow
  sso_identities: SsoIdentityRow
  sso_exchanges: SsoExchangeRow
  sso_assertions: { id_hash: string; expires_at: string }
  sso_tests: SsoTestRow
  /** What our own requests are signed with; the key sealed, the certificate in base64. */
  saml_keys: { id: string; private_key: string; certificate: string; created_at: string }
  trust_policies: TrustPolicyRow
  /** Where issuers of tokens publish their keys. */
  trust_issuers: { issuer: string; jwks_url: string; discovered_at: string }
  /** Tokens that were used, until nobody would accept them any more. */
  trust_tokens: { token_hash: string; expires_at: string }
  agent_links: AgentLinkRow
  agent_rotations: AgentRotationRow
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
  /** Base64; `succession` is what this key and the one before it signed. */
  audit_keys: { public_key: string; succession: string | null; created_at: string }
  audit_verdicts: AuditVerdictRow
  audit_anchors: AuditAnchorRow
  audit_retention: AuditRetentionRow
  audit_archives: AuditArchiveRow
  /** Who reads a whole chain, whose beginning may not go meanwhile. */
  audit_readings: { id: string; chain: string; until: string }
  idempotency_keys: IdempotencyKeyRow
  mails: MailRow
  phone_codes: PhoneCodeRow
}

export type TableName = keyof Tables

type Stamped = { id: string; created_at: string; updated_at: string }

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
  /** Folded form that is unique. */
  email_key: string
  name: string
  status: string
  avatar_url: string | null
  is_system: number
  password_hash: string | null
  password_changed_at: string | null
  /** Both are read by the release before 0033 alone. */
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
  /** Since when it is known that the holder reads the mail of the address. */
  email_proved_at: string | null
}

export type LoginChallengeRow = {
  id: string
  token_hash: string
  user_id: string
  /** Which membership the login asked for, JSON. */
  context: string
  mfa_epoch: number
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
  /** The identity provider it came in by. */
  sso_provider_id: string | null
  /** When its holder last proved who they are. */
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

/** Whether a membership counts yet, and who its tenant invited. */
type MembershipStanding = {
  /** null: its holder has not accepted it, and it gives nothing. */
  accepted_at: string | null
  /** `holder`: on their own proof. `provider`: by single sign-on of the organization. */
  accepted_by: string | null
  /** As whoever invited them typed it. */
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
  /** 1 when an identity provider invited, and no person did. */
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
  /** 1 when whoever invited saw the link as well: it proves no address. */
  shown: Generated<number>
}

export type DeviceGroupRow = Stamped & {
  org_id: string
  site_id: string | null
  name: string
  type: Generated<string>
  /** The saved filter that decides who is in a dynamic group. */
  filter_id: string | null
  parent_id: string | null
  /** When the filter was last asked. */
  evaluated_at: string | null
  /** Why it could not be asked then. */
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
  /** The key before the last rotation, for as long as both are good. */
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
    /** Folded, as are all columns of this name (src/core/fold.ts). */
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
    /** auto as the agent says it, or manual. */
    device_role_source: string
    is_virtual: number
    virtualization_platform: string | null
    is_headless: number
    last_user: string | null
    uptime_seconds: number | null
    pending_reboot: number
    pending_patches: number | null
    maintenance_until: string | null
    quarantined_at: string | null
    quarantined_reason: string | null
    watchdog_status: string | null
  }

type DeviceCounts = {
  /** How many log entries have come in of it: the place of the last one. */
  log_seq: Generated<number>
  /** How many bytes of logs are kept of it. */
  log_bytes: Generated<number>
  /** How many bytes of what came of commands are kept of it. */
  command_bytes: Generated<number>
  /** JSON: addresses that were audited as new lately, with when. */
  told_addresses: string | null
}

/** What a heartbeat is compared with: the row of a device is wide, and this is read with each of them. */
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

/** With what its tenant and the commands that wait say. */
export type AgentDeviceRow = Pick<
  Selectable<DeviceRow & DeviceAgentColumns>,
  (typeof agentDeviceColumns)[number]
> &
  AgentTargetColumns & {
    org_status: string
    partner_status: string
    /** 1 where commands wait for the agent or its watchdog. */
    has_commands: number | null
  }

/** As the agent last reported it; all null before it did. */
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
  /** Counts up when the content changes. */
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
  /** JSON, of what is not sound. */
  fault: string | null
  entries: number
  checked_at: string
  /** The mark of the service on the rest of the row. */
  seal: string | null
}

export type AuditLogRow = {
  chain: string
  seq: number
  id: string
  checksum: string
  prev_checksum: string
  /** RFC 8785 text of the entry: what the checksum covers and what readers are shown. */
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

/** Where a chain begins since retention removed what came before. */
type AuditAnchorRow = {
  chain: string
  /** The newest entry that was removed. */
  seq: number
  checksum: string
  pruned_count: number
  /** The anchor, signed. */
  note: string
  /** The perfect trees of what was removed, largest first: JSON list of base64. */
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
  /** Runs that failed since the last one that did not. */
  failures: number
  retry_at: string | null
  /** Who removes entries at present, and until when nobody else does. */
  lease: string | null
  leased_until: string | null
  /** Up to where the object goes that is being archived, so that it is the same one after a crash. */
  archiving_to: number | null
}

/** A part of a chain that is kept elsewhere. */
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
  /** Who, and in which tenant. */
  owner: string
  key: string
  /** The request that has it; in earlier releases of what it asked, which is kept with the reply now. */
  request_hash: string
  /** What was asked, and the reply, encrypted; empty while the first request is still running. */
  reply: string
  /** Of earlier releases. */
  status: number
  created_at: string
}

type MailRow = {
  id: string
  kind: string
  /** The letter, encrypted: it may hold a link that sets a password. */
  content: string
  attempts: number
  /** When it is tried next; while someone sends it, when their claim ends. */
  due_at: string
  /** Names the claim of whoever sends it now. */
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
  /** Place among all that came in of the device, of both kinds. */
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

/** What happened, until it was given out to the webhooks that asked for it. */
type EventRow = {
  seq: Generated<number>
  id: string
  org_id: string
  type: string
  /** JSON. */
  data: string
  created_at: string
  /** The last webhook that got it, where one transaction did not reach all of them. */
  given_to: string | null
}

export type WebhookRow = Stamped & {
  org_id: string
  name: string
  /** Sealed, as are the secrets and `headers`, a JSON list of key and value. */
  url: string
  secret: string | null
  previous_secret: string | null
  previous_until: string | null
  headers: string
  /** active, disabled or error. */
  status: string
  /** JSON; null: the usual one. */
  retry_policy: string | null
  created_by: string
  /** Its deliveries go in the background, and then it. */
  deleted_at: string | null
}

type WebhookQueueRow = {
  webhook_id: string
  org_id: string
  /** When the first of its deliveries is due. */
  due_at: string | null
  /** The process that sends them at the moment. */
  holder: string | null
  last_seq: number
}

export type WebhookCountRow = {
  webhook_id: string
  /** Of attempts. */
  success_count: number
  failure_count: number
  last_delivery_at: string | null
  last_success_at: string | null
}

export type WebhookDeliveryRow = {
  id: string
  webhook_id: string
  org_id: string
  /** Its number among the deliveries of its webhook, from 1. */
  seq: number
  event: string
  event_id: string
  event_at: string
  /** JSON. */
  payload: string
  status: string
  /** 1: a person asked for it, so it goes out whatever the state of its webhook. */
  asked_for: number
  /** Attempts that were made. */
  attempt: number
  /** When the next is made; null: none is. */
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
  /** The delivery that it repeats, for it was asked for again. */
  retry_of: string | null
}

export type SsoProviderRow = Stamped & {
  org_id: string
  /** Of SAML: one of those the contract names. */
  name_id_format: string | null
  force_authn: number
  sign_requests: number
  /** JSON: the permissions of whoever configured it. */
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
  /** Sealed. */
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
  /** With commas between them; null: all. */
  allowed_domains: string | null
  enforce_sso: number
  created_by: string
}

/** A sign-in that is under way at a provider. */
export type SsoSessionRow = {
  state_hash: string
  provider_id: string
  nonce: string
  /** Sealed. */
  code_verifier: string
  redirect_path: string
  /** Of the cookie of the browser in which it began. */
  browser_hash: string | null
  /** Whoever exchanges the code that ends it has to know what this is the hash of. */
  challenge: string | null
  /** The provider's `updated_at` when it began. */
  provider_version: string | null
  /** A trial of the provider. */
  test_id: string | null
  created_at: string
  expires_at: string
}

/** A code that becomes tokens, once. */
export type SsoExchangeRow = {
  code_hash: string
  provider_id: string
  user_id: string
  mfa: number
  challenge: string | null
  created_at: string
  expires_at: string
}

/** A trial of a provider by somebody who administers it. */
export type SsoTestRow = {
  id: string
  provider_id: string
  token_hash: string
  redirect_path: string
  /** pending, passed or failed. */
  status: string
  /** JSON: what was done and received. */
  steps: string
  created_at: string
  expires_at: string
}

/** Who a subject of a provider is here. */
export type SsoIdentityRow = Stamped & {
  provider_id: string
  user_id: string
  external_id: string
  email: string
  /** JSON: all that the provider said of them. */
  profile: string
  /** Sealed, as is the next. */
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
  /** One of them, `name=value`, which leads from a token to the policy (src/trust/rules.ts). */
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
