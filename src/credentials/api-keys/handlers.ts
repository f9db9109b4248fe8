import { newId } from '../../core/new-id.ts'
import type { HandlersOf } from '../../handler.ts'
import { checkOrg } from '../../tenancy/store.ts'
import { resolveKeyOrg } from '../new-key.ts'
import { checkExpiry } from '../rules.ts'
import type * as contract from './contract.ts'
import {
  apiKeyHash,
  applyChange,
  checkChangeable,
  checkDelegation,
  checkKeyReach,
  checkRevocable,
  difference,
  expiryKept,
  isWidened,
  makeApiKey,
  newApiKey,
  overlapEnd,
  rotateKey,
} from './rules.ts'
import * as store from './store.ts'

export const apiKeys: HandlersOf<typeof contract.apiKeys> = {
  async list({ db, readQueryIfWide, scope, query, now }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    return readQueryIfWide((on) => store.listApiKeys(on, scope, query, now))
  },

  async create({ db, scope, body, caller, now, quota }) {
    checkExpiry(body.expiresAt, now)
    const orgId = await resolveKeyOrg(db, scope, body.orgId)
    checkDelegation(body.scopes, caller.permissions)
    const key = newApiKey()
    const minted = makeApiKey({ ...body, orgId }, { id: newId(), key, by: caller.id, now })
    await quota({ orgId })
    await store.insertApiKey(db, minted, apiKeyHash(key))
    return { ...minted, key, warning: 'Store this API key securely. It will not be shown again.' }
  },

  show: ({ db, scope, params }) => store.getApiKey(db, scope, params.id),

  async update({ db, scope, params, body, caller, now, note }) {
    const before = await store.getApiKey(db, scope, params.id)
    checkChangeable(before, now)
    if (body.scopes !== undefined) checkDelegation(body.scopes, caller.permissions)
    const after = applyChange(before, body)
    if (isWidened(before, after)) checkKeyReach(before, caller)
    await store.changeApiKey(db, scope, after)
    note({ orgId: after.orgId, ...difference(before, after) })
    return after
  },

  async revoke({ db, scope, params, note }) {
    const before = await store.getApiKey(db, scope, params.id)
    checkRevocable(before)
    await store.revokeApiKey(db, scope, before.id)
    const { id, name, keyPrefix } = before
    const change = { before: { status: before.status }, after: { status: 'revoked' } }
    note({ orgId: before.orgId, resourceName: name, ...change })
    const apiKey = { id, name, keyPrefix, status: 'revoked' as const }
    return { success: true, message: 'API key revoked successfully', apiKey }
  },

  async rotate({ db, scope, params, body, caller, now, note }) {
    checkExpiry(body.expiresAt, now)
    const before = await store.getApiKey(db, scope, params.id)
    checkChangeable(before, now)
    checkDelegation(before.scopes, caller.permissions)
    checkKeyReach(before, caller)
    const key = newApiKey()
    const after = rotateKey(before, key, body.expiresAt)
    const previousUntil = overlapEnd([before, after], body.overlapSeconds, now)
    await store.replaceApiKey(db, scope, after, { hash: apiKeyHash(key), previousUntil })
    note({
      before: { keyPrefix: before.keyPrefix, usageCount: before.usageCount, expiresAt: before.expiresAt },
      after: { keyPrefix: after.keyPrefix, usageCount: 0, expiresAt: after.expiresAt },
      details: { overlapSeconds: body.overlapSeconds },
    })
    const old =
      previousUntil === null ? 'The old key has been invalidated' : `The old key works until ${previousUntil}`
    const end = expiryKept(before, body.expiresAt)
    const warning = `Store this API key securely. ${old} and this new key will not be shown again.${end}`
    return { ...after, key, warning }
  },
}
