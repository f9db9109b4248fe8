import { z } from 'zod'
import { endpoint, publicAccess, userAccess } from '../../core/endpoint.ts'
import { flag, pageOf, pageQuery } from '../../core/page.ts'
import { idOf, instant, text } from '../../core/schema.ts'
import { architectureNames, architectureOf, components, platformNames, platformOf } from './manifest.ts'
import { isVersion } from './semver.ts'

/** With or without the leading v of a tag. */
export const version = text(21, 1)
  .overwrite((said) => said.replace(/^v/, ''))
  .refine(isVersion, 'must be a version such as 1.2.3 or 1.3.0-rc.1')

const component = z.enum(components)
const platform = z.enum(['windows', 'macos', 'linux'])
const architecture = z.enum(['x64', 'arm64', 'x86'])

/** The platform, by any of its usual names. */
const machine = {
  platform: z
    .enum(platformNames)
    .transform((name) => platformOf(name)!)
    .describe('Operating system: darwin is macos'),
  arch: z
    .enum(architectureNames)
    .transform((name) => architectureOf(name)!)
    .describe('Architecture: amd64 is x64'),
  component: component.default('agent').describe('Program'),
}

export const AgentBuild = z
  .object({
    build: z.string().describe('amd64/amd64'),
    component,
    platform,
    architecture,
    name: z.string().describe('File name'),
    checksum: z.string().describe('SHA-256, 64 hex characters'),
    size: z.int(),
    promotedAt: instant.nullable().describe('Not null when it is offered to machines of this platform'),
    rollbackAt: instant
      .nullable()
      .describe('Not null after a roll-back to it: it is also offered to machines with a newer version'),
  })
  .meta({ id: 'AgentBuild' })
export type AgentBuild = z.output<typeof AgentBuild>

export const AgentRelease = z
  .object({
    version: z.string(),
    tag: z.string(),
    channel: z.enum(['stable', 'candidate']),
    minFrom: z.string().nullable().describe('The oldest version that can update to it directly; null: any'),
    minimumVersion: z
      .string()
      .nullable()
      .describe('Agents that run it refuse versions below this one; null: no limit'),
    builds: z.array(z.string()).describe('amd64/amd64'),
    promotedFor: z.array(z.string()).describe('Builds that are offered to machines'),
    rollbackFor: z
      .array(z.string())
      .describe('Those of them that are also offered to machines with a newer version'),
    notes: z.string().nullable(),
    signingKeyId: z.string().describe('Id of the key that signed its manifest'),
    files: z.array(AgentBuild),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'AgentRelease' })
export type AgentRelease = z.output<typeof AgentRelease>

/** Data that an agent needs to verify a version: the manifest is the exact text that was signed. */
const signed = {
  manifestSignature: z.string().describe('Ed25519 over the bytes of the manifest, base64'),
  signingKeyId: z.string(),
}

const tag = 'Agent versions'
const params = z.strictObject({ version })
const reads = userAccess({ permission: 'devices:read', key: true })
const writes = userAccess({ scopes: ['system'], permission: 'organizations:write', mfa: true })
const audited = (action: string) => ({ action, resource: 'agent_version' as const })

export const agentVersions = {
  list: endpoint({
    method: 'GET',
    path: '/agent-versions',
    summary: 'List the registered versions of the agent, newest first',
    tag,
    access: reads,
    query: z.strictObject(pageQuery()),
    reply: pageOf(AgentRelease),
  }),
  latest: endpoint({
    method: 'GET',
    path: '/agent-versions/latest',
    summary: 'Show the version that is offered to machines of a platform',
    tag,
    access: publicAccess,
    query: z.strictObject(machine),
    reply: z.object({
      version: z.string(),
      downloadUrl: z.string(),
      checksum: z.string(),
      fileSize: z.int(),
      releaseManifest: z.string(),
      ...signed,
      releaseNotes: z.string().nullable(),
    }),
    errors: ['not_found'],
  }),
  show: endpoint({
    method: 'GET',
    path: '/agent-versions/:version',
    summary: 'Show a version of the agent with its builds',
    tag,
    access: reads,
    params,
    reply: AgentRelease,
  }),
  info: endpoint({
    method: 'GET',
    path: '/agent-versions/:version/download',
    summary: 'Show the download address of a version for a platform, with its signed manifest',
    tag,
    access: publicAccess,
    params,
    query: z.strictObject(machine),
    reply: z.object({
      version: z.string(),
      url: z.string(),
      checksum: z.string(),
      size: z.int(),
      manifest: z.string(),
      ...signed,
    }),
    errors: ['release_untrusted'],
  }),
  sync: endpoint({
    method: 'POST',
    path: '/agent-versions/sync-release',
    idempotencyKey: 'honored',
    summary: 'Register a release of the agent, by default the latest stable one, and offer it to machines',
    tag,
    access: writes,
    query: z.strictObject({
      version: version.optional().describe('Tag of the release, such as v1.2.3 or v1.3.0-rc.1'),
      promote: flag.prefault('true').describe('Offer it to machines as well'),
    }),
    reply: z.object({
      version: z.string(),
      synced: z.array(z.string()).describe('Its builds, such as agent:linux/amd64'),
      promoted: z.array(z.string()).describe('Builds that are offered to machines now'),
      withheld: z
        .string()
        .nullable()
        .describe(
          'Why it is registered but not offered: it is older than the offered version, or was rolled back from',
        ),
    }),
    audit: audited('agent.version.sync'),
    errors: [
      'not_found',
      'release_changed',
      'rollout_in_progress',
      'release_refused',
      'releases_not_configured',
      'release_host_failed',
    ],
  }),
  promote: endpoint({
    method: 'POST',
    path: '/agent-versions/promote',
    idempotencyKey: 'honored',
    summary: 'Offer a registered version to machines with an older version, where it has a build for them',
    tag,
    access: writes,
    body: z.strictObject({
      version: version.describe('Version such as 1.2.3'),
      component: component.optional().describe('Only this program; by default all programs of the version'),
    }),
    reply: z.object({
      promoted: z.array(z.string()).describe('Builds that are offered now'),
      demoted: z.array(z.string()).describe('Builds that they replace, such as agent:linux/amd64@1.1.0'),
    }),
    audit: audited('agent.version.promote'),
    errors: ['not_found', 'rollback_needed', 'below_minimum_version', 'rollout_in_progress'],
    example: { version: '1.2.3' },
  }),
  rollback: endpoint({
    method: 'POST',
    path: '/agent-versions/rollback',
    idempotencyKey: 'honored',
    summary: 'Offer an older version to machines that run a newer one, until one is promoted',
    tag,
    access: writes,
    body: z.strictObject({
      version: version.describe('Version to return to, such as 1.2.2'),
      component: component.optional().describe('Only this program; by default all programs of the version'),
      platform: machine.platform.optional().describe('Only machines with this operating system'),
      arch: machine.arch.optional().describe('Only machines of this architecture'),
    }),
    reply: z.object({
      promoted: z.array(z.string()).describe('Builds that are offered now'),
      demoted: z.array(z.string()).describe('Builds that they replace, such as agent:linux/amd64@1.2.3'),
      endedRollout: idOf('agent_rollout')
        .nullable()
        .describe('The rollout of a newer version that it aborted'),
    }),
    audit: audited('agent.version.rollback'),
    errors: ['not_found', 'conflict', 'below_minimum_version', 'rollout_in_progress'],
    example: { version: '1.2.2' },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/agent-versions/:version',
    summary: 'Delete a registered version of the agent that is not offered',
    tag,
    access: writes,
    params,
    reply: z.object({ success: z.literal(true) }),
    audit: audited('agent.version.delete'),
    errors: ['release_in_use'],
  }),
}
