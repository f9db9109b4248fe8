import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { flag, pageOf, pageQuery } from '../core/page.ts'
import { anyObject, idOf, idPrefix, instant, text } from '../core/schema.ts'
import { osType } from '../devices/contract.ts'

export const scriptLanguage = z.enum(['powershell', 'bash', 'python', 'cmd'])
export const runAs = z.enum(['system', 'user', 'elevated'])

/** Most characters of a script. */
export const maxScriptLength = 1_000_000

/** A script in lists, without its content. */
export const ScriptSummary = z
  .object({
    id: idOf('script'),
    orgId: idOf('organization').nullable(),
    partnerId: idOf('partner').nullable().describe('Set for a script of all organizations of this partner'),
    name: z.string(),
    description: z.string().nullable(),
    category: z.string().nullable(),
    osTypes: z.array(osType),
    language: scriptLanguage,
    timeoutSeconds: z.int(),
    runAs,
    isSystem: z.boolean().describe('A script of the service, for every organization'),
    version: z.int().describe('Increases when the content changes'),
    createdBy: z.guid().nullable(),
    createdAt: instant,
    updatedAt: instant,
  })
  .meta({ id: 'ScriptSummary' })
export type ScriptSummary = z.output<typeof ScriptSummary>

export const Script = ScriptSummary.extend({
  content: z.string(),
  parameters: z.record(z.string(), z.unknown()).nullable(),
}).meta({ id: 'Script' })
export type Script = z.output<typeof Script>

const fields = {
  name: text(255, 1).describe('Name people see'),
  description: text(5000).nullable().describe('Purpose'),
  category: text(100, 1).nullable().describe('Category'),
  osTypes: z
    .array(osType)
    .min(1, 'must name at least one operating system')
    .max(3, 'must have at most 3 items')
    .overwrite((all) => [...new Set(all)])
    .meta({ flag: 'os' })
    .describe('Operating systems it runs on'),
  language: scriptLanguage.describe('Program that runs it'),
  content: text(maxScriptLength, 1)
    .meta({ flag: 'file', file: true })
    .describe(`The script itself, at most ${maxScriptLength} characters`),
  parameters: anyObject.nullable().describe('Description of its parameters, in any form'),
  timeoutSeconds: z
    .int()
    .min(1, 'must be at least 1')
    .max(3600, 'must be at most 3600')
    .meta({ flag: 'timeout-seconds' })
    .describe('Seconds after which a run is stopped'),
  runAs: runAs.describe('Account it runs as'),
}

export const NewScript = z.strictObject({
  orgId: idOf('organization').optional().describe('Organization it belongs to'),
  partnerId: idOf('partner').optional().describe('Partner it belongs to, for all its organizations'),
  isSystem: z.boolean().default(false).describe('For all organizations; system scope only'),
  name: fields.name,
  description: fields.description.default(null),
  category: fields.category.default(null),
  osTypes: fields.osTypes,
  language: fields.language,
  content: fields.content,
  parameters: fields.parameters.default(null),
  timeoutSeconds: fields.timeoutSeconds.default(300),
  runAs: fields.runAs.default('system'),
})
export type NewScript = z.output<typeof NewScript>

export const ScriptChange = z
  .strictObject({
    name: fields.name.optional(),
    description: fields.description.optional(),
    category: fields.category.optional(),
    osTypes: fields.osTypes.optional(),
    language: fields.language.optional(),
    content: fields.content.optional(),
    parameters: fields.parameters.optional(),
    timeoutSeconds: fields.timeoutSeconds.optional(),
    runAs: fields.runAs.optional(),
  })
  .refine((change) => Object.values(change).some((value) => value !== undefined), 'must change something')
export type ScriptChange = z.output<typeof ScriptChange>

/** A character of a script may take six bytes in JSON. */
const maxBody = 7 * 1024 * 1024

const tag = 'Scripts'
const reads = userAccess({ permission: 'scripts:read', key: true })
const writes = userAccess({ permission: 'scripts:write', key: true })
const deletes = userAccess({ permission: 'scripts:delete', key: true })
const params = z.strictObject({ id: idOf('script') })

export const scripts = {
  list: endpoint({
    method: 'GET',
    path: '/scripts',
    summary: 'List scripts by name: those of organizations, of their partner and of the service',
    tag,
    access: reads,
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization').optional().describe('Only those this organization can use'),
      language: scriptLanguage.optional(),
      osType: osType.optional().meta({ flag: 'os' }).describe('Only those for this operating system'),
      category: text(100).optional(),
      isSystem: flag.optional().describe('Only those of the service, or only the others'),
      search: text(100).optional().describe('Part of the name or description'),
      idPrefix,
      ...pageQuery(),
    }),
    reply: pageOf(ScriptSummary),
    errors: ['org_access_denied'],
  }),
  create: endpoint({
    method: 'POST',
    path: '/scripts',
    idempotencyKey: 'honored',
    summary: 'Create a script',
    tag,
    access: writes,
    body: NewScript,
    maxBody,
    status: 201,
    reply: Script,
    audit: { action: 'script.create', resource: 'script' },
    quota: 'SCRIPTS',
    errors: ['tenant_required', 'org_access_denied', 'partner_mismatch', 'partner_access_limited'],
    example: {
      name: 'Clear temporary files',
      osTypes: ['linux'],
      language: 'bash',
      content: 'find /tmp -mtime +7 -delete\n',
    },
  }),
  show: endpoint({
    method: 'GET',
    path: '/scripts/:id',
    summary: 'Show a script with its content',
    tag,
    access: reads,
    params,
    reply: Script,
  }),
  update: endpoint({
    method: 'PATCH',
    path: '/scripts/:id',
    summary: 'Change a script',
    tag,
    access: writes,
    params,
    body: ScriptChange,
    maxBody,
    reply: Script,
    audit: { action: 'script.update', resource: 'script' },
    errors: ['partner_access_limited'],
    example: { timeoutSeconds: 600 },
  }),
  remove: endpoint({
    method: 'DELETE',
    path: '/scripts/:id',
    summary: 'Delete a script; records of its use stay',
    tag,
    access: deletes,
    params,
    reply: z.object({ success: z.literal(true), message: z.string() }),
    audit: { action: 'script.delete', resource: 'script' },
    errors: ['partner_access_limited'],
  }),
}
