import { newId } from '../core/new-id.ts'
import type { HandlersOf } from '../handler.ts'
import { getTenant } from '../identity/tenant.ts'
import type { Db } from '../storage/open.ts'
import { scopeWithin } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import {
  applyChange,
  auditDiff,
  auditSnapshot,
  checkMayWrite,
  checkSystemScript,
  makeScript,
} from './rules.ts'
import * as store from './store.ts'

export const scripts: HandlersOf<typeof contract.scripts> = {
  async list({ db, readQuery, readQueryIfWide, scope, query: { orgId, ...query } }) {
    const seen = await scopeWithin(db, scope, orgId)
    // A search for part of a text reads every visible script.
    const listed = (on: Db) => store.listScripts(on, seen, query)
    return query.search ? readQuery(listed) : readQueryIfWide(listed)
  },

  async create({ db, scope, body, caller, now, note, quota }) {
    if (body.isSystem) checkSystemScript(scope, body)
    const owner = body.isSystem ? undefined : await getTenant(db, scope, body)
    const script = makeScript(body, owner, { id: newId(), by: caller.id, now })
    checkMayWrite(scope, script)
    await quota(script)
    await store.insertScript(db, script)
    note({ after: auditSnapshot(script) })
    return script
  },

  show: ({ db, scope, params }) => store.getScript(db, scope, params.id),

  async update({ db, scope, params, body, now, note }) {
    const before = await store.lockScript(db, scope, params.id)
    note({ orgId: before.orgId, resourceName: before.name })
    checkMayWrite(scope, before)
    const after = applyChange(before, body, now)
    await store.changeScript(db, scope, after)
    note({ resourceName: after.name, ...auditDiff(before, after) })
    return after
  },

  async remove({ db, scope, params, now, note }) {
    const script = await store.lockScript(db, scope, params.id)
    note({ orgId: script.orgId, resourceName: script.name })
    checkMayWrite(scope, script)
    await store.removeScript(db, scope, script.id, now)
    note({ before: auditSnapshot(script) })
    return { success: true, message: 'Script deleted' }
  },
}
