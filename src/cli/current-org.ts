import { isId } from '../core/ids.ts'
import type { Resource } from '../core/schema.ts'
import type { CommandContext } from './base.ts'
import { resolveId } from './resolve.ts'

/** The id of the current organization: that of --org, of SVC_ORG or of the context. */
export async function currentOrg(session: CommandContext): Promise<string | undefined> {
  const { value } = session.settings.org
  if (!value) return undefined
  const { resolveTenant } = await import('./tenant-ids.ts')
  return resolveTenant(session, 'organization', value)
}

/** The tenant of a command: the partner of its flag, else the current organization. */
export async function namedTenant(
  session: CommandContext,
  partner: string | undefined,
): Promise<{ orgId?: string; partnerId?: string }> {
  const isOrgNamed = session.settings.org.from === 'flag'
  const orgId = partner === undefined || isOrgNamed ? await currentOrg(session) : undefined
  const { resolveTenant } = await import('./tenant-ids.ts')
  const partnerId = partner === undefined ? undefined : await resolveTenant(session, 'partner', partner)
  return { ...(orgId !== undefined && { orgId }), ...(partnerId !== undefined && { partnerId }) }
}

/** For a record given by name: the current organization, which narrows the search. */
export async function withinOrg(session: CommandContext) {
  return { orgId: await currentOrg(session), insists: session.settings.org.from !== 'context' }
}

/** The id of a record given by id, or by name within the current organization. */
export async function resolveWithinOrg(session: CommandContext, resource: Resource, word: string) {
  return isId(word) ? word.toLowerCase() : resolveId(session.client, resource, word, await withinOrg(session))
}
