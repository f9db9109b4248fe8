import type { CommandContext } from './base.ts'
import { resolveOrgOrDeleted } from './resolve.ts'

export const resolveAuditOrg = async ({ client, settings }: CommandContext): Promise<string | undefined> =>
  settings.org.value ? resolveOrgOrDeleted(client, settings.org.value) : undefined
