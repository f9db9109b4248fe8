import type { HandlersOf } from '../../handler.ts'
import { checkOrgAndNote, sealedRead } from '../handlers.ts'
import {
  categoryStats,
  complianceEvents,
  complianceReport,
  expandAction,
  securityEvents,
  securityReport,
} from '../rules.ts'
import { type auditReports as contract, maxUsers } from './contract.ts'
import { countActions, countActivity, countUsers, listRecentEntries } from './store.ts'

type Reports = typeof contract

const top = 5
const recent = 10

export const auditReports: HandlersOf<Reports> = {
  users: sealedRead<Reports['users']>(async ({ query, ...call }) => {
    await checkOrgAndNote(call, query.orgId)
    return call.readQuery(async (on) => {
      const actionsPerUser = await countUsers(on, call.scope, query, maxUsers)
      return {
        ...(await countActivity(on, call.scope, query)),
        actionsPerUser,
        topUsers: actionsPerUser.slice(0, top),
        recentActivity: await listRecentEntries(on, call.scope, query, 'people', recent),
      }
    })
  }),

  security: sealedRead<Reports['security']>(async ({ query, ...call }) => {
    await checkOrgAndNote(call, query.orgId)
    return call.readQuery(async (on) => ({
      ...securityReport(await countActions(on, call.scope, query)),
      recentEvents: await listRecentEntries(
        on,
        call.scope,
        query,
        securityEvents.flatMap(expandAction),
        recent,
      ),
    }))
  }),

  compliance: sealedRead<Reports['compliance']>(async ({ query, ...call }) => {
    await checkOrgAndNote(call, query.orgId)
    return call.readQuery(async (on) => ({
      ...complianceReport(await countActions(on, call.scope, query)),
      recentEvents: await listRecentEntries(
        on,
        call.scope,
        query,
        complianceEvents.flatMap(expandAction),
        recent,
      ),
    }))
  }),

  stats: sealedRead<Reports['stats']>(async ({ query, ...call }) => {
    await checkOrgAndNote(call, query.orgId)
    return call.readQuery(async (on) => ({
      ...categoryStats(await countActions(on, call.scope, query)),
      byUser: await countUsers(on, call.scope, query, maxUsers),
      range: { from: query.from ?? null, to: query.to ?? null },
    }))
  }),
}
