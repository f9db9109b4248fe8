import { basename } from 'node:path'
import { ApiError, type Client } from '../core/client.ts'
import { isId } from '../core/ids.ts'
import type { CommandContext } from './base.ts'
import { readCached } from './files.ts'
import { withLock } from './lock.ts'
import { callerOf, fileOfNames, forgetNames, keepNames } from './name-cache.ts'
import { resolveId } from './resolve.ts'

/** How long an id is reused. Until then a name that somebody else has given to another tenant has the former id. */
const freshMs = 30_000

type Tenant = 'partner' | 'organization'
type Kept = { at: number; id: string }

const asked = new WeakMap<Client, Map<string, Promise<string>>>()
let hasUsedKept = false

/**
 * The id of a tenant in which something is done, given by id or name: a command asks once, and others of the same caller, also
 * those that run at the same time, take its answer.
 */
export function resolveTenant(session: CommandContext, resource: Tenant, word: string): Promise<string> {
  const { client } = session
  if (isId(word)) return resolveId(client, resource, word)
  const known = asked.get(client) ?? new Map<string, Promise<string>>()
  asked.set(client, known)
  const question = `${resource} ${word}`
  const id = known.get(question) ?? shareAnswer(session, question, () => resolveId(client, resource, word))
  known.set(question, id)
  return id
}

async function shareAnswer(
  { settings, clientOptions: { token, apiKey } }: CommandContext,
  question: string,
  ask: () => Promise<string>,
): Promise<string> {
  const caller = token?.source === '--token' ? undefined : callerOf(settings, apiKey)
  if (caller === undefined) return ask()
  const file = fileOfNames(settings, caller, question)
  const kept = () => {
    const { at, id } = readCached<Kept>(file) ?? { at: 0, id: undefined }
    if (id === undefined || Date.now() - at > freshMs) return undefined
    hasUsedKept = true
    return id
  }
  let answer: Promise<string> | undefined
  const askOnce = () => {
    answer ??= ask()
    return answer
  }
  const askForAll = async () => {
    const before = kept()
    if (before !== undefined) return before
    const id = await askOnce()
    keepNames(file, { at: Date.now(), id } satisfies Kept)
    return id
  }
  // Where nothing can be locked or kept, each command asks for itself.
  return kept() ?? withLock(basename(file), askForAll).catch(askOnce)
}

/** An id that was kept and leads nowhere may be that of a tenant that is gone. */
export function forgetStaleTenants(failure: unknown): void {
  if (hasUsedKept && failure instanceof ApiError && [403, 404].includes(failure.status)) forgetNames()
}
