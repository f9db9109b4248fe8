import { agentCommands, deviceCommands } from './agents/commands/contract.ts'
import { agents } from './agents/contract.ts'
import { agentDownloads } from './agents/downloads/contract.ts'
import { agentKeys } from './agents/keys/contract.ts'
import { agentRollouts } from './agents/rollouts/contract.ts'
import { agentTokens } from './agents/tokens/contract.ts'
import { agentUpdates } from './agents/upgrades/contract.ts'
import { agentVersions } from './agents/versions/contract.ts'
import { alerts } from './alerts/contract.ts'
import { auditCheckpoints } from './audit/checkpoints/contract.ts'
import { auditLogs } from './audit/contract.ts'
import { auditExports } from './audit/exports/contract.ts'
import { auditReports } from './audit/reports/contract.ts'
import { auditRetention } from './audit/retention/contract.ts'
import { configuration } from './configuration/contract.ts'
import { configurationApplies } from './configuration/history/contract.ts'
import type { Contract } from './core/endpoint.ts'
import { apiKeys } from './credentials/api-keys/contract.ts'
import { enrollmentKeys } from './credentials/enrollment-keys/contract.ts'
import { devices } from './devices/contract.ts'
import { events } from './events/contract.ts'
import { filters } from './filters/contract.ts'
import { deviceGroups } from './groups/contract.ts'
import { auth, users } from './identity/contract.ts'
import { permissions } from './identity/permissions/contract.ts'
import { roles } from './identity/roles/contract.ts'
import { deviceLogs, liveLogs, logLevels } from './live/contract.ts'
import { diagnosticLogs } from './logs/diagnostic/contract.ts'
import { eventLogs } from './logs/events/contract.ts'
import { logTails } from './logs/tails/contract.ts'
import { overview } from './overview/contract.ts'
import { scripts } from './scripts/contract.ts'
import { search } from './search/contract.ts'
import { service } from './service/contract.ts'
import { deadLetters } from './service/dead-letters/contract.ts'
import { sso, ssoProviders } from './sso/contract.ts'
import { ssoIdentities } from './sso/identities/contract.ts'
import { ssoSignIn } from './sso/sign-in/contract.ts'
import { ssoTrials } from './sso/trials/contract.ts'
import { orgs, partners, sites } from './tenancy/contract.ts'
import { trust, trustPolicies } from './trust/contract.ts'
import { webhooks } from './webhooks/contract.ts'
import { webhookDeliveries } from './webhooks/deliveries/contract.ts'
import { webhookRelay } from './webhooks/relay/contract.ts'

/** All endpoints of the product. */
export const api = {
  service,
  deadLetters,
  partners,
  orgs,
  sites,
  auth,
  users,
  roles,
  permissions,
  apiKeys,
  enrollmentKeys,
  devices,
  deviceCommands,
  filters,
  deviceGroups,
  scripts,
  alerts,
  search,
  diagnosticLogs,
  eventLogs,
  logTails,
  liveLogs,
  deviceLogs,
  logLevels,
  events,
  webhooks,
  webhookDeliveries,
  webhookRelay,
  sso,
  ssoProviders,
  ssoSignIn,
  ssoTrials,
  ssoIdentities,
  trust,
  trustPolicies,
  agents,
  agentTokens,
  agentKeys,
  agentUpdates,
  agentRollouts,
  agentCommands,
  agentVersions,
  agentDownloads,
  auditLogs,
  auditCheckpoints,
  auditExports,
  auditReports,
  auditRetention,
  overview,
  configuration,
  configurationApplies,
} satisfies Contract

/** The sections of the API reference: one description for each tag of the endpoints. */
export const sections: Readonly<Record<string, string>> = {
  Service: 'Whether the service is there, which version, and what it could not write.',
  Tenancy: 'Partners, their organizations, and the sites of those.',
  Authentication: 'Signing in and out, sessions and second factors.',
  Users: 'The people of a tenant: memberships, roles, reach and invitations.',
  Roles: 'What people may do, in roles that inherit from each other.',
  Permissions: 'Which permissions there are, and why a request is allowed or refused.',
  'API keys': 'Keys with which programs call the service for one organization.',
  'Enrollment keys': 'Short-lived keys that let machines into an organization.',
  Devices: 'The machines that were enrolled.',
  Filters: 'Saved questions about devices: nested conditions, and which devices match them.',
  'Device groups': 'Devices that belong together: put in by people, or found by a saved filter.',
  Scripts: 'What can be run on devices: of an organization, of a partner for all of its, or of the service.',
  Alerts: 'What needs someone to look after it.',
  Search: 'One search over devices, scripts, alerts and settings.',
  Logs: 'What agents say of themselves, and what the machines they run on wrote down.',
  'Live queries':
    'What the agent of a device is asked while somebody waits: its logs as they are at that moment.',
  Webhooks: 'Events pushed to addresses of a tenant: signed, tried again, and kept.',
  SSO: 'The identity providers with which the people of an organization sign in.',
  Trust: 'Policies by which jobs of CI systems sign in with the tokens they have there: no secret is stored.',
  Agents: 'What the agent on a machine says; only for agents.',
  'Agent rollouts':
    'New versions of the agent, brought to its devices wave by wave: halted by themselves when too many fail.',
  'Agent versions': 'Which versions of the agent there are, which machines are offered, and their files.',
  Configuration: 'What administrators set up, in files that are planned and applied as a whole.',
  Overview: 'The state of a fleet in numbers, as far as the caller may read it.',
  Audit: 'Who did what, in chains that show when something was altered.',
}
