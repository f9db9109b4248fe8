import { z } from 'zod'
import { endpoint, userAccess } from '../../core/endpoint.ts'
import { flag } from '../../core/page.ts'
import { actionNames, resourceNames } from '../../core/permissions.ts'
import { idOf, text } from '../../core/schema.ts'

export const Explanation = z
  .object({
    allowed: z.boolean(),
    status: z.int().nullable().describe('Status of the refusal'),
    code: z.string().nullable().describe('Code of the refusal'),
    reason: z.string(),
    hint: z.string().nullable(),
    permission: z.string().nullable().describe('What is needed'),
    grantedBy: z
      .object({
        roleId: idOf('role'),
        roleName: z.string(),
        permission: z.string().describe('What the role grants: the permission itself or a wildcard'),
        inherited: z.boolean(),
      })
      .nullable(),
    subject: z
      .object({
        userId: idOf('user').nullable(),
        userName: z.string().nullable(),
        roleId: idOf('role').nullable(),
        roleName: z.string().nullable(),
        scope: z.enum(['system', 'partner', 'organization']),
        mfa: z.boolean().describe('Whether a session with a verified factor is meant'),
      })
      .describe('Whom it is about'),
  })
  .meta({ id: 'Explanation' })
export type Explanation = z.output<typeof Explanation>

/** The subject of the query: the caller by default. */
const subject = {
  userId: idOf('user').optional().describe('For this user instead of yourself').meta({ flag: 'as' }),
  roleId: idOf('role')
    .optional()
    .describe('For someone with this role; with a user: as if they had it')
    .meta({ flag: 'as-role' }),
  keyScopes: text(2000)
    .optional()
    .describe('For an API key with these scopes, separated by commas')
    .meta({ flag: 'as-key' }),
  workloadPermissions: text(2000)
    .optional()
    .describe('For a workload whose trust policy names these permissions, separated by commas')
    .meta({ flag: 'as-workload' }),
  mfa: flag
    .optional()
    .describe('Whether their session carries a verified factor; it does where one is enrolled'),
  orgId: idOf('organization').optional().describe('Where the user or role is looked for'),
  partnerId: idOf('partner').optional().describe('Where the user or role is looked for'),
}

const tag = 'Permissions'
const words = z.record(z.string(), z.string())

export const permissions = {
  catalog: endpoint({
    method: 'GET',
    path: '/permissions/catalog',
    summary: 'List every permission a role can grant',
    tag,
    access: userAccess(),
    reply: z.object({
      permissions: z.array(z.object({ resource: z.string(), action: z.string(), description: z.string() })),
      resourceLabels: words,
      actionLabels: words,
    }),
  }),
  canI: endpoint({
    method: 'GET',
    path: '/permissions/can-i',
    summary: 'Say whether you may do something, and which role lets you',
    tag,
    access: userAccess(),
    query: z.strictObject({
      action: z.enum(actionNames).describe('Such as read or write'),
      resource: z.enum(resourceNames).describe('Such as devices'),
      ...subject,
    }),
    reply: Explanation,
    errors: ['forbidden', 'not_found'],
  }),
  explain: endpoint({
    method: 'GET',
    path: '/permissions/explain',
    summary: 'Say why a request is allowed or refused before it is made',
    tag,
    access: userAccess(),
    query: z.strictObject({
      method: z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']).describe('Method of the request'),
      path: text(2000, 1).describe('Path below /api/v1, with or without ids filled in'),
      ...subject,
    }),
    reply: Explanation.extend({
      method: z.string(),
      path: z.string().describe('The route that answers, with its parameters'),
      operation: z.string(),
      summary: z.string(),
    }).meta({ id: 'RouteExplanation' }),
    errors: ['forbidden', 'not_found'],
  }),
}
