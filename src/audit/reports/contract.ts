import { z } from 'zod'
import { endpoint } from '../../core/endpoint.ts'
import { idOf, instant } from '../../core/schema.ts'
import { AuditEntry, accessAudit, auditReadAccess, orgId, tag, timeRange } from '../contract.ts'

const query = z.strictObject({ orgId, ...timeRange })

const count = z.int()
const byAction = z.array(z.object({ action: z.string(), count })).describe('The most frequent first')
const UserActivity = z
  .object({ id: idOf('user'), name: z.string(), email: z.string(), count, lastActivity: instant })
  .meta({ id: 'AuditUserActivity' })

/** Most people in a report, the most active first. */
export const maxUsers = 1000

export const auditReports = {
  users: endpoint({
    method: 'GET',
    path: '/audit-logs/reports/user-activity',
    summary: 'Report who did how much',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query,
    reply: z.object({
      totalUsers: count.describe('People who did something'),
      totalEvents: count.describe('What they did, in all'),
      actionsPerUser: z.array(UserActivity).describe(`Who did most first, at most ${maxUsers}`),
      topUsers: z.array(UserActivity),
      recentActivity: z.array(AuditEntry),
    }),
    errors: ['org_access_denied'],
  }),
  security: endpoint({
    method: 'GET',
    path: '/audit-logs/reports/security-events',
    summary: 'Report sign-ins and changes of permissions and policies',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query,
    reply: z.object({
      totalEvents: count,
      loginAttempts: count.describe('Sign-ins, also those that failed'),
      failedLogins: count,
      permissionChanges: count.describe('Also roles that were given, and limits to sites and groups'),
      byAction,
      recentEvents: z.array(AuditEntry),
    }),
    errors: ['org_access_denied'],
  }),
  compliance: endpoint({
    method: 'GET',
    path: '/audit-logs/reports/compliance',
    summary: 'Report access to data, its changes and exports',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query,
    reply: z.object({
      totalEvents: count,
      dataAccess: count,
      dataChanges: count,
      exports: count,
      byAction,
      recentEvents: z.array(AuditEntry),
    }),
    errors: ['org_access_denied'],
  }),
  stats: endpoint({
    method: 'GET',
    path: '/audit-logs/stats',
    summary: 'Count audit entries by category and by user',
    tag,
    access: auditReadAccess,
    readQuery: true,
    audit: accessAudit,
    query,
    reply: z.object({
      totalEvents: count,
      byCategory: z.array(z.object({ category: z.string(), count })),
      byUser: z.array(UserActivity).describe(`Who did most first, at most ${maxUsers}`),
      range: z.object({ from: instant.nullable(), to: instant.nullable() }),
    }),
    errors: ['org_access_denied'],
  }),
}
