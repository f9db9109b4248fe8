import { commandHandlers } from '../src/agents/commands/handlers.ts'
import { agentDownloadHandlers } from '../src/agents/downloads/handlers.ts'
import { agentHandlers } from '../src/agents/handlers.ts'
import { agentKeyHandlers } from '../src/agents/keys/handlers.ts'
import { rolloutHandlers } from '../src/agents/rollouts/handlers.ts'
import { agentTokens } from '../src/agents/tokens/handlers.ts'
import { agentUpdates } from '../src/agents/upgrades/handlers.ts'
import { agentVersionHandlers } from '../src/agents/versions/handlers.ts'
import { alerts } from '../src/alerts/handlers.ts'
import { api } from '../src/api.ts'
import { auditCheckpointHandlers } from '../src/audit/checkpoints/handlers.ts'
import { signedChainEnd } from '../src/audit/checkpoints/jobs.ts'
import { auditExports } from '../src/audit/exports/handlers.ts'
import { auditLogHandlers } from '../src/audit/handlers.ts'
import { requeueEntry } from '../src/audit/outbox.ts'
import { auditReports } from '../src/audit/reports/handlers.ts'
import { retentionHandlers } from '../src/audit/retention/handlers.ts'
import { configurationHandlers } from '../src/configuration/handlers.ts'
import { type Endpoint, entriesOf } from '../src/core/endpoint.ts'
import { apiKeys } from '../src/credentials/api-keys/handlers.ts'
import { enrollmentKeyHandlers } from '../src/credentials/enrollment-keys/handlers.ts'
import { deviceHandlers } from '../src/devices/handlers.ts'
import { events } from '../src/events/handlers.ts'
import { filterHandlers } from '../src/filters/handlers.ts'
import { filterHooks } from '../src/groups/filter-hooks.ts'
import { deviceGroups } from '../src/groups/handlers.ts'
import { leaveGroupsOfOtherSites } from '../src/groups/site-change.ts'
import { authHandlers, userHandlers } from '../src/identity/handlers.ts'
import { permissionHandlers } from '../src/identity/permissions/handlers.ts'
import { roles } from '../src/identity/roles/handlers.ts'
import { liveHandlers } from '../src/live/handlers.ts'
import { diagnosticLogHandlers } from '../src/logs/diagnostic/handlers.ts'
import { eventLogHandlers } from '../src/logs/events/handlers.ts'
import { logTails } from '../src/logs/tails/handlers.ts'
import { overviewHandlers } from '../src/overview/handlers.ts'
import { scripts } from '../src/scripts/handlers.ts'
import { search } from '../src/search/handlers.ts'
import { deadLetterHandlers, type Rewrites } from '../src/service/dead-letters/handlers.ts'
import { ssoHandlers } from '../src/sso/handlers.ts'
import { tenancyHandlers } from '../src/tenancy/handlers.ts'
import { trustHandlers } from '../src/trust/handlers.ts'
import { version } from '../src/version.ts'
import { deliverDeadLetter } from '../src/webhooks/deliveries/dead-letters.ts'
import { webhookDeliveries } from '../src/webhooks/deliveries/handlers.ts'
import { webhookHandlers } from '../src/webhooks/handlers.ts'
import { webhookRelayHandlers } from '../src/webhooks/relay/handlers.ts'
import { type Handlers, handlerOf, healthOf } from './app.ts'
import type { Config } from './config.ts'
import type { Dependencies } from './dependencies.ts'
import { innerCalls } from './inner-calls.ts'
import type { QuotaCheck } from './quotas.ts'
import { currentProxy } from './secrets/set.ts'
import { accessOfTenants } from './tenant-access.ts'

/** The handlers of every entry of the contract, with the parts of the service that they work with. */
export function handlersOf(parts: Dependencies, config: Config, quotas: QuotaCheck): Handlers {
  const { storage, clock, audit, secrets: running } = parts
  const { mfaOn, registrationOn, enrollmentTtlMinutes: ttlMinutes } = config
  const access = currentProxy(() => running.now.tokens.access)
  const workloads = currentProxy(() => running.now.tokens.workloads)
  const secrets = currentProxy(() => running.now.config.secrets)
  const previous = currentProxy(() => running.now.config.previous)
  const own = {
    service: { health: async ({ ip }: { ip: string }) => healthOf(version, ip, parts.gate.closure) },
    deadLetters: deadLetterHandlers(rewrites),
    ...tenancyHandlers(accessOfTenants),
    auth: authHandlers({
      ...parts,
      get recoveryPepper() {
        return secrets.recoveryPepper
      },
      get otherRecoveryPepper() {
        return previous.recoveryPepper
      },
      access,
      mfaOn,
      registrationOn,
    }),
    users: userHandlers(parts),
    roles,
    permissions: permissionHandlers({ entries: entriesOf(api), mfaOn }),
    apiKeys,
    enrollmentKeys: enrollmentKeyHandlers({
      get pepper() {
        return secrets.enrollmentPepper
      },
      ttlMinutes,
    }),
    devices: deviceHandlers({ ...config, moved: leaveGroupsOfOtherSites }),
    filters: filterHandlers(filterHooks),
    deviceGroups,
    scripts,
    alerts,
    search,
    diagnosticLogs: diagnosticLogHandlers(parts.logQuota),
    eventLogs: eventLogHandlers(parts.logQuota),
    logTails,
    ...liveHandlers({ ...config, ...parts }),
    events,
    webhooks: webhookHandlers(parts),
    webhookDeliveries,
    webhookRelay: webhookRelayHandlers(parts),
    ...ssoHandlers({ ...parts, access }),
    ...trustHandlers({ ...parts, tokens: workloads }),
    agentTokens,
    agentKeys: agentKeyHandlers(audit.parts.signer),
    ...commandHandlers(parts),
    agents: agentHandlers({
      ...config,
      storage,
      get pepper() {
        return secrets.enrollmentPepper
      },
      get otherPepper() {
        return previous.enrollmentPepper
      },
      get enrollmentSecret() {
        return running.now.config.enrollmentSecret
      },
      get serviceKey() {
        return audit.parts.signer.publicKeys[0]!.toString('base64')
      },
      trustKeys: config.outside.releases.trustKeys,
      emitsNow: (...changed) => parts.agentEvents.emitsNow(...changed),
      onHeartbeat: () => parts.agentWatch.heartbeat('http'),
    }),
    agentUpdates,
    agentRollouts: rolloutHandlers(parts.rollouts),
    agentVersions: agentVersionHandlers({ ...parts, trustKeys: config.outside.releases.trustKeys }),
    agentDownloads: agentDownloadHandlers(parts.binaries),
    auditLogs: auditLogHandlers({
      clock,
      localCopies: audit.parts.localCopies,
      closing: (chain) => signedChainEnd(audit.parts, chain),
    }),
    auditCheckpoints: auditCheckpointHandlers(audit.parts),
    auditExports,
    auditReports,
    auditRetention: retentionHandlers({ ...parts, ...audit.parts }),
    overview: overviewHandlers({ mfaOn }),
  }
  const names = new Map<Endpoint, string>(entriesOf(api).map(({ name, entry }) => [entry, name]))
  const calls = innerCalls({
    storage,
    quotas,
    sharedLimiter: parts.sharedLimiter,
    mfaOn,
    handlerOf: (entry) => handlerOf(own, names.get(entry) ?? entry.path),
  })
  return { ...own, ...configurationHandlers({ calls, cipher: parts.cipher }) }
}

const rewrites: Rewrites = {
  async audit_logs(db, _scope, letter) {
    await requeueEntry(db, letter)
    return {}
  },
  events: deliverDeadLetter,
}
