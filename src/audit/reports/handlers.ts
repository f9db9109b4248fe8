import type { HandlersOf } from '../../handler.ts'
import { checked, sealed } from '../handlers.ts'
import { complianceEvents, complianceOf, meantBy, securityEvents, securityOf, statsOf } from '../rules.ts'
import { type auditReports as contract, mostUsers } from './contract.ts'
import { activityOf, countActions, countUsers, recentOf } from './store.ts'

type Reports = typeof contract

const top = 5
const recent = 10

export const auditReports: HandlersOf<Reports> = {
  users: sealed<Reports['users']>(async ({ query, ...call }) => {
    await checked(call, query.orgId)
    const { heavy } = call.storage
    const actionsPerUser = await countUsers(heavy, call.scope, query, mostUsers)
    return {
      ...(await activityOf(heavy, call.scope, query)),
      actionsPerUser,
      topUsers: actionsPerUser.slice(0, top),
      recentActivity: await recentOf(heavy, call.scope, query, 'people', recent),
    }
  }),

  security: sealed<Reports['security']>(async ({ query, ...call }) => {
    await checked(call, query.orgId)
    const { heavy } = call.storage
    return {
      ...securityOf(await countActions(heavy, call.scope, query)),
      recentEvents: await recentOf(heavy, call.scope, query, securityEvents.flatMap(meantBy), recent),
    }
  }),

  compliance: sealed<Reports['compliance']>(async ({ query, ...call }) => {
    await checked(call, query.orgId)
    const { heavy } = call.storage
    return {
      ...complianceOf(await countActions(heavy, call.scope, query)),
      recentEvents: await recentOf(heavy, call.scope, query, complianceEvents.flatMap(meantBy), recent),
    }
  }),

  stats: sealed<Reports['stats']>(async ({ query, ...call }) => {
    await checked(call, query.orgId)
    const { heavy } = call.storage
    return {
      ...statsOf(await countActions(heavy, call.scope, query)),
      byUser: await countUsers(heavy, call.scope, query, mostUsers),
      range: { from: query.from ?? null, to: query.to ?? null },
    }
  }),
}
