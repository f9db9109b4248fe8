import { afterAll, beforeAll, expect, it } from 'vitest'
import { deleteExpired } from '../../daemon/background.ts'
import { api } from '../../src/api.ts'
import { addSeconds, systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { isTried } from '../depth.ts'
import { startService, type TestService } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { toWire } from './calls.ts'
import { called } from './fields.ts'
import { type Bound, bound, documentedTables, expectDocumented, expectTests } from './named-bounds.ts'
import { type ScenarioTools, scenarioOf, scenarioTools } from './scenarios.ts'
import { tableRows } from './table-sizes.ts'
import { Line } from './wire.ts'

const quota = bound(
  'QUOTA_<NAME>',
  'test/laws/quotas.test.ts',
  'is refused when its tenant has as many as the quota allows',
)
const expiry = bound(
  'rows expire',
  'test/laws/growth-of-tenants.test.ts',
  'is empty again when everything that expires has expired',
)
const ofOwner = (by: string): Bound => ({ ...quota, by })
const unneeded = (by: string): Bound =>
  bound(by, 'test/daemon/ended-records.test.ts', 'of agents stay while something needs them')
const ended = (by: string): Bound =>
  bound(`QUOTA_<NAME>, ${by}`, 'test/daemon/ended-records.test.ts', 'are deleted after their days')
const history = bound(
  'AUDIT_RETENTION_ENABLED, RATE_LIMIT_BODY_BYTES_HOURLY, 64 KiB of an entry',
  'test/daemon/limits.test.ts',
  'BODY_BYTES_HOURLY: counts the bodies of a user',
)

/**
 * All tables that grow with the actions of people, programs and strangers: what bounds them, and the test that reaches
 * the bound.
 */
const bounds: Record<string, Bound> = {
  alerts: ended('ALERT_RETENTION_DAYS'),
  api_keys: ended('ENDED_KEY_RETENTION_DAYS'),
  device_groups: quota,
  devices: ended('DECOMMISSIONED_DEVICE_RETENTION_DAYS'),
  enrollment_keys: ended('ENDED_KEY_RETENTION_DAYS'),
  organization_memberships: quota,
  organizations: quota,
  partner_memberships: quota,
  partners: quota,
  roles: quota,
  saved_filters: quota,
  scripts: ended('DELETED_SCRIPT_RETENTION_DAYS'),
  sites: quota,
  sso_providers: quota,
  trust_policies: quota,
  webhooks: quota,
  organization_membership_groups: ofOwner('members and groups of an organization'),
  organization_membership_sites: ofOwner('members and sites of an organization'),
  webhook_counts: ofOwner('one of each webhook'),
  webhook_events: ofOwner('one of each webhook and event type'),
  webhook_queues: ofOwner('one of each webhook'),
  audit_heads: ofOwner('one of each organization'),
  audit_retention: ofOwner('one of each organization'),
  role_permissions: ofOwner('permissions of the service, of each role'),
  device_tags: ofOwner('100 of each device'),
  trust_issuers: bound(
    'issuers of trust policies',
    'test/trust/exchange.test.ts',
    'leaves no record of its issuer once no policy trusts it',
  ),
  users: bound(
    'members; those who register or come by single sign-on: RATE_LIMIT_REGISTER, RATE_LIMIT_SSO_ORG; others are deleted',
    'test/identity/invitations.test.ts',
    'leaves no account once it was withdrawn',
  ),
  recovery_codes: bound(
    'ten of each account',
    'test/daemon/mfa.test.ts',
    'returns a secret for an authenticator app and ten recovery codes',
  ),
  agent_commands: bound(
    '100 open and 1000 finished ones of each device',
    'test/agents/commands.test.ts',
    'is kept among the newest 1000 that have finished of its device',
  ),
  device_group_changes: bound(
    'the newest 10,000 of each group',
    'test/groups/dynamic.test.ts',
    'the newest 10,000 membership changes of a group are kept',
  ),
  audit_logs: history,
  audit_checkpoints: bound(
    'one an hour; AUDIT_CHECKPOINT_RETENTION_DAYS, then one a month',
    'test/audit/thinning.test.ts',
    'is thinned out to the last of each month',
  ),
  audit_tiles: bound(
    'one of 256 entries; AUDIT_PROOF_RETENTION_DAYS',
    'test/audit/thinning.test.ts',
    'loses tiles that no newer proof needs',
  ),
  agent_builds: unneeded('RELEASE_RETENTION_DAYS'),
  agent_releases: unneeded('RELEASE_RETENTION_DAYS'),
  agent_rollouts: unneeded('ROLLOUT_RETENTION_DAYS'),
  invitations: expiry,
  mfa_setups: expiry,
  password_reset_requests: expiry,
  phone_codes: expiry,
  sessions: expiry,
  sign_in_marks: expiry,
  sso_tests: expiry,
  trust_tokens: expiry,
}

/** What the background works off: whether a row is seen depends on when. */
const passing: Record<string, Bound> = {
  events: bound(
    'handed to webhooks',
    'test/webhooks/upkeep.test.ts',
    'removes deliveries when their retention',
  ),
  mails: bound('sent, or given up', 'test/messages/queue.test.ts', 'is given up when it has expired'),
  webhook_deliveries: bound(
    'WEBHOOK_DELIVERIES_KEPT of each webhook',
    'test/webhooks/upkeep.test.ts',
    'leaves a webhook its newest deliveries',
  ),
  rate_limit_windows: bound(
    '2^20 of each limit; rows expire within its seconds',
    'test/daemon/shared-limits.test.ts',
    'has at most 1,048,576 rows of each limit',
  ),
  agent_rollout_devices: unneeded('ROLLOUT_RETENTION_DAYS'),
  webhook_workers: bound(
    'one of each process',
    'test/webhooks/upkeep.test.ts',
    'removes deliveries when their retention',
  ),
}

/** Tables that these scenarios fill only by chance, or that agents fill; and what bounds them. */
const apart: Record<string, string> = {
  agent_links: 'agents: growth.test.ts',
  agent_logs: 'agents: growth.test.ts',
  agent_keys: 'agents: growth.test.ts',
  agent_rotations: 'agents: growth.test.ts',
  device_disks: 'agents: growth.test.ts',
  device_event_logs: 'agents: growth.test.ts',
  device_interfaces: 'agents: growth.test.ts',
  device_software: 'agents: growth.test.ts',
  api_key_buckets: 'an hour, in buckets, of each API key: test/daemon/key-replicas.test.ts',
  audit_anchors: 'one of each chain',
  audit_archives: 'AUDIT_ARCHIVE_RECORD_RETENTION_DAYS: test/audit/thinning.test.ts',
  audit_checkpoint_claims: 'at most one of each chain, while it is signed',
  audit_keys: 'one of each signing key, set by the operator',
  audit_restores: 'one of each chain and restore, by the operator',
  audit_readings: 'a minute after the last reader',
  audit_verdicts: 'one of each chain',
  backup_runs: 'one of backups and one of drills',
  backups: 'the newest 2000: test/daemon/backup/retention.test.ts',
  device_authorizations: 'minutes: sweepDeviceAuthorizations',
  config_applies: '100 of each tenant: test/configuration/history.test.ts',
  config_changes: '1000 of each apply, 64 Mi characters of each tenant: test/configuration/history.test.ts',
  config_objects: 'objects that exist: test/configuration/apply.test.ts',
  config_sets: '100 of each tenant, each with an object: test/configuration/apply.test.ts',
  device_custom_fields: '100 of each device',
  device_group_devices: 'devices and groups of an organization',
  idempotency_keys: 'a day: deleteOldAttempts',
  leases: 'one of each kind of background work',
  live_questions: 'while an agent answers',
  login_challenges: 'minutes: sweepSessions',
  outbox: 'until it is sealed, within seconds',
  partner_membership_orgs: 'members and organizations of a partner',
  password_resets: 'one of each account',
  registrations: 'a day: sweepRegistrations',
  saml_keys: 'one of the service, and one of each loss of its encryption key',
  set_aside: '10,000 rows and 64 MiB of each source: test/storage',
  set_aside_lost: 'one of each source',
  sso_assertions: 'minutes: sweepSignIns',
  sso_exchanges: 'minutes: sweepSignIns',
  sso_identities: 'one of each account and provider',
  sso_sessions: 'minutes: sweepSignIns',
  key_prints: 'one of each key',
  probes: 'one row',
  service_processes: 'one of each process, until two minutes after it was last seen',
  svc_migrations: 'one of each migration',
}

/** Tables that are empty again when everything in them has expired. */
const expiring = Object.entries(bounds).flatMap(([table, one]) => (one === expiry ? [table] : []))

/** Search indexes, which are proportional to what they index. */
const isIndex = /_trigrams/

onEveryDatabase((kind, open) => {
  let service: TestService
  let hand: ScenarioTools
  let line: Line
  beforeAll(async () => {
    service = await startService(open)
    hand = scenarioTools(service, await buildWorld(service), systemClock)
    line = new Line(service.url)
  })
  afterAll(async () => {
    await line.close()
    await service.close()
  })

  const others = called(api).filter(({ entry }) => entry.access.who !== 'agent')
  const rows = () => tableRows(service.storage)

  it('has a bound that a test reaches', async () => {
    const found = new Map<string, string>()
    for (const [n, { name, entry }] of others.entries()) {
      if (!isTried(kind, n, 6)) continue
      const { input, token } = await scenarioOf(name, entry, hand)
      const before = await rows()
      const { status } = await line.send(toWire(entry, input, token))
      expect([name, status < 400]).toEqual([name, true])
      for (const [table, count] of await rows()) {
        if (count > before.get(table)! && !isIndex.test(table)) found.set(table, name)
      }
    }
    expect(found.size).toBeGreaterThan(kind === 'sqlite' ? 30 : 10)
    const unbounded = [...found].filter(([table]) => !(table in bounds || table in passing || table in apart))
    expect(unbounded).toEqual([])
    const unseen = Object.keys(bounds).filter((table) => !found.has(table))
    if (kind === 'sqlite') expect(unseen).toEqual([])
    expectTests(Object.values({ ...bounds, ...passing }).map(({ test }) => test))
  })

  it('is known, with every other table, to this law or to that of agents', async () => {
    const tables = [...(await rows()).keys()].filter((table) => !isIndex.test(table))
    const known = new Set([bounds, passing, apart].flatMap((some) => Object.keys(some)))
    expect(tables.filter((table) => !known.has(table))).toEqual([])
  })

  it('is in svc-serve(8), with the settings that bound it', async () => {
    const tables = [...(await rows()).keys()].filter((table) => !isIndex.test(table))
    // Made by the first migration that needs it.
    expect([...documentedTables().keys()].sort()).toEqual([...tables, 'svc_oldest_version'].sort())
    expectDocumented({ ...bounds, ...passing, ...apart })
  })

  it('is empty again when everything that expires has expired', async () => {
    // Those that tests start by themselves have no end.
    const endless = '9999-01-01T00:00:00.000Z'
    await service.storage.write((tx) => tx.deleteFrom('sessions').where('expires_at', '=', endless).execute())
    await deleteExpired(service.storage, addSeconds(systemClock(), 400 * 86_400))
    const after = await rows()
    expect(expiring.filter((table) => after.get(table)! > 0)).toEqual([])
  })
})
