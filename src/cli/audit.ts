import type { Session } from './base.ts'
import { resolveEverOrg } from './resolve.ts'

export const orgOf = async ({ client, settings }: Session): Promise<string | undefined> =>
  settings.org.value ? resolveEverOrg(client, settings.org.value) : undefined
