import { api } from '../../src/api.ts'
import type { TestService } from '../harness.ts'
import type { Org, World } from '../world.ts'

/** Enrolls a device into an organization, and into a site if given. */
export async function addDevice(
  service: TestService,
  { tokens }: Pick<World, 'tokens'>,
  org: Pick<Org, 'id'>,
  hostname: string,
  { siteId, osType = 'linux' }: { siteId?: string; osType?: 'linux' | 'windows' } = {},
): Promise<string> {
  const body = { orgId: org.id, name: hostname, ...(siteId !== undefined && { siteId }) }
  const { key } = await service.client(tokens.system).call(api.enrollmentKeys.create, { body })
  const machine = { osType, osVersion: '12', architecture: 'x64', agentVersion: '0.1.0' } as const
  const enrolled = await service
    .client()
    .call(api.agents.enroll, { body: { enrollmentKey: key, hostname, ...machine } })
  return enrolled.deviceId
}
