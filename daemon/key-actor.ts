import type { FastifyRequest } from 'fastify'
import type { Access } from '../src/core/endpoint.ts'
import { Problem } from '../src/core/errors.ts'
import type { Instant } from '../src/core/time.ts'
import {
  checkUsable,
  expireApiKey,
  findPresentedKey,
  type PresentedKey,
} from '../src/credentials/api-keys/principal.ts'
import { type Quota, retryAfterSeconds } from '../src/credentials/api-keys/rate-limit-window.ts'
import { apiKeyHash, isApiKey } from '../src/credentials/api-keys/rules.ts'
import type { ApiKeyCaller } from '../src/handler.ts'
import { checkAccess } from '../src/identity/rules.ts'
import type { Storage } from '../src/storage/open.ts'
import { networkOf } from './address.ts'
import type { KeyMeter } from './key-meter.ts'
import type { Limiter } from './limiter.ts'

type UserAccess = Extract<Access, { who: 'user' }>

export type KeyAuthenticator = (
  access: UserAccess,
  presented: string,
  request: FastifyRequest,
  now: Instant,
) => Promise<ApiKeyCaller>

/**
 * The program behind an X-API-Key. Checks run in a fixed order, which decides the error: format,
 * record, status, expiry, rate limit, use, permission.
 */
export function createKeyAuthenticator(
  storage: Storage,
  meter: KeyMeter,
  limiter: Limiter,
): KeyAuthenticator {
  const find = remembered(storage)
  return async (access, presented, request, now) => {
    const key = await authenticated(presented, now).catch((error: unknown) => {
      limiter.take('IP', networkOf(request.client.ip))
      throw error
    })
    request.caller = key.caller
    const taking = meter.take({ id: key.id, hash: key.hash, rateLimit: key.rateLimit }, now)
    const { accepted, quota } = taking instanceof Promise ? await taking : taking
    request.quota = quota
    if (!accepted) {
      throw new Problem('rate_limited', undefined, { retryAfter: retryAfterSeconds(quota, Date.parse(now)) })
    }
    checkAccess(access, key.caller, true)
    return key.caller
  }

  async function authenticated(presented: string, now: Instant): Promise<PresentedKey> {
    if (!isApiKey(presented)) throw new Problem('invalid_api_key', 'Invalid API key format')
    const key = await find(apiKeyHash(presented))
    if (!key) throw new Problem('invalid_api_key')
    await refuseDead(key, now)
    return key
  }

  async function refuseDead(key: PresentedKey, now: Instant): Promise<void> {
    try {
      checkUsable(key, now)
    } catch (error) {
      const expired = error instanceof Problem && error.code === 'api_key_expired'
      if (expired && key.status === 'active') await storage.write((tx) => expireApiKey(tx, key.id))
      throw error
    }
  }
}

/** Caches keys until any commit. */
function remembered(storage: Storage): (hash: string) => Promise<PresentedKey | undefined> {
  const known = new Map<string, { key: PresentedKey; version: number }>()
  return async (hash) => {
    const version = storage.version()
    const found = known.get(hash)
    if (found && found.version === version) return found.key
    const key = await findPresentedKey(storage.read, hash)
    if (key && version !== undefined) {
      if (known.size >= 10_000) known.clear()
      known.set(hash, { key, version })
    } else {
      known.delete(hash)
    }
    return key
  }
}

/** The headers of every reply to an authenticated key. */
export const quotaHeaders = ({ limit, remaining, reset }: Quota): Record<string, number> => ({
  'x-ratelimit-limit': limit,
  'x-ratelimit-remaining': remaining,
  'x-ratelimit-reset': reset,
})
