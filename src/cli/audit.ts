import type { Session } from './base.ts'
import { resolveId } from './resolve.ts'

export const orgOf = async ({ client, settings }: Session): Promise<string | undefined> =>
  settings.org.value ? resolveId(client, 'organization', settings.org.value) : undefined
