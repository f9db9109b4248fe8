import { setImmediate as nextTurn } from 'node:timers/promises'
import { z } from 'zod'
import { type Access, type Contract, type Endpoint, entriesOf } from './endpoint.ts'
import { type ErrorCode, errors } from './errors.ts'
import { unwrap } from './schema.ts'

type Json = Record<string, unknown>
/** What operations refer to, collected while they are described. */
type Components = { schemas: Json; responses: Json }

/** Used by this product, and not part of JSON Schema. */
const annotations = 'resource secret hidden flag formerFlag spread file past future deleted id'.split(' ')

/** JSON Schema of a zod schema, in the form that OpenAPI 3.1 and the response serializer use. */
export function toJsonSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const made = z.toJSONSchema(schema, {
    target: 'draft-2020-12',
    io,
    unrepresentable: 'any',
    override: ({ jsonSchema }) => {
      for (const note of annotations) delete (jsonSchema as Json)[note]
    },
  }) as Json
  delete made.$schema
  return made
}

/**
 * The OpenAPI 3.1 document of a contract. `sections` describes each tag. It takes some 200 ms, so others get their turn
 * after each endpoint.
 */
export async function openApiOf(
  contract: Contract,
  about: { title: string; version: string; description: string },
  sections: Readonly<Record<string, string>> = {},
): Promise<Json> {
  const components: Components = { schemas: { Error: errorSchema }, responses: {} }
  const paths: Record<string, Json> = {}
  for (const { name, entry } of entriesOf(contract)) {
    // The service treats a path with and without a trailing slash the same.
    const path = entry.path.replaceAll(/:(\w+)/g, '{$1}').replace(/(?<=.)\/$/, '')
    paths[path] = { ...paths[path], [entry.method.toLowerCase()]: operationOf(name, entry, components) }
    await nextTurn()
  }
  return {
    openapi: '3.1.0',
    info: { ...about, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/api/v1' }],
    tags: [...new Set(entriesOf(contract).map(({ entry }) => entry.tag))].map((tag) => ({
      name: tag,
      ...(sections[tag] !== undefined && { description: sections[tag] }),
    })),
    paths,
    components: {
      ...components,
      securitySchemes: {
        user: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'Access token of a user' },
        apiKey: {
          type: 'apiKey',
          in: 'header',
          name: 'X-API-Key',
          description: 'API key of an organization; when it is sent, a bearer token is ignored',
        },
        workload: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description:
            'Access token of a CI job, limited to the permissions of its trust policy (POST /auth/federated)',
        },
        agent: { type: 'http', scheme: 'bearer', description: 'Token of an enrolled agent' },
      },
    },
  }
}

function operationOf(name: string, entry: Endpoint, { schemas, responses }: Components): Json {
  const { access } = entry
  const needs =
    access.who === 'user'
      ? {
          permission: access.permission,
          scopes: access.scopes,
          mfa: access.mfa,
          ...(access.wholePartner && { wholePartner: true }),
          ...(access.wholeOrganization && { wholeOrganization: true }),
        }
      : undefined
  return {
    operationId: name.replaceAll('.', '_'),
    summary: entry.summary,
    tags: [entry.tag],
    security: securityOf(access),
    ...(needs && { 'x-needs': needs }),
    ...(entry.emits && { 'x-emits': entry.emits }),
    ...parametersOf(entry, schemas),
    ...(entry.body && { requestBody: requestOf(entry, schemas) }),
    responses: {
      ...answersOf(entry, schemas),
      ...refusalsOf(entry, responses),
      ...(entry.redirects && {
        default: { description: 'A failure that no page displays', content: problem },
      }),
    },
  }
}

function answersOf(entry: Endpoint, schemas: Json): Json {
  if (entry.bytes) return answersWithBytes
  const { status = 200, streams: types = ['application/json'], reply } = entry
  if (entry.redirects) return { [status]: onTheWay(reply.description ?? 'Redirect') }
  const schema = hoisted(reply, 'output', schemas)
  const content = Object.fromEntries(types.map((type) => [type.replace(/;.*/, ''), { schema }]))
  return { [status]: { description: 'Success', content } }
}

const onTheWay = (description: string): Json => ({
  description,
  headers: { location: { schema: { type: 'string' } } },
})

const file = { content: { 'application/octet-stream': {} } }

const answersWithBytes: Json = {
  200: { description: 'The file', ...file },
  206: { description: 'The part of it that Range asks for', ...file },
  302: onTheWay('Where it is'),
  304: { description: 'If-None-Match has its entity tag' },
}

const problem = { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } }

function securityOf(access: Access): Record<string, []>[] {
  if (access.who === 'public') return []
  if (access.who === 'agent') return [{ agent: [] }]
  return [
    { user: [] },
    ...(access.key ? [{ apiKey: [] as [] }] : []),
    ...(access.workload === true ? [{ workload: [] as [] }] : []),
  ]
}

function requestOf(entry: Endpoint, schemas: Json): Json {
  const schema = hoisted(entry.body!, 'input', schemas)
  const content = { schema, ...(entry.example && { example: exampleOf(entry) }) }
  return {
    required: !entry.body!.safeParse(undefined).success,
    ...(entry.gzip && { description: 'May come with Content-Encoding: gzip' }),
    content: { [entry.form ? 'application/x-www-form-urlencoded' : 'application/json']: content },
  }
}

/** The id that examples name. */
export const someId = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'

/** The example of an entry's body, with an id for each record that it must name. */
export function exampleOf({ body, example = {} }: Endpoint): Json {
  const inner = body && unwrap(body)
  if (!(inner instanceof z.ZodObject)) return example
  const missing = Object.entries(inner.shape as Record<string, z.ZodType>).filter(
    ([key, field]) => !(key in example) && namesRecords(field) && !field.safeParse(undefined).success,
  )
  const ids = missing.map(([key, field]) => [key, field instanceof z.ZodArray ? [someId] : someId])
  return { ...Object.fromEntries(ids), ...example }
}

const namesRecords = (field: z.ZodType): boolean =>
  (field instanceof z.ZodArray ? (field.element as z.ZodType) : field).meta()?.resource !== undefined

function parametersOf(entry: Endpoint, schemas: Json): Json {
  const places = { path: entry.params, query: entry.query }
  const parameters = Object.entries(places).flatMap(([place, schema]) =>
    Object.entries((schema?.shape ?? {}) as Record<string, z.ZodType>)
      .filter(([, field]) => field.meta()?.hidden !== true)
      .map(([name, field]) => {
        const { description, ...made } = hoisted(field, 'input', schemas)
        const required = place === 'path' || !field.safeParse(undefined).success
        return { name, in: place, required, ...(description !== undefined && { description }), schema: made }
      }),
  )
  if (entry.idempotencyKey === 'honored') parameters.push(idempotencyKey)
  return parameters.length > 0 ? { parameters } : {}
}

const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description:
    'A request sent again with the same key within 24 hours changes nothing and gets the first reply; ' +
    '409 while the first is still in progress, or when the key was used with another request',
  schema: { type: 'string', maxLength: 255 },
}

/** A schema whose named parts are moved to the components of the document. */
function hoisted(schema: z.ZodType, io: 'input' | 'output', schemas: Json): Json {
  const { $defs, ...made } = toJsonSchema(schema, io)
  for (const [name, part] of Object.entries(($defs ?? {}) as Json)) schemas[name] ??= relinked(part as Json)
  return relinked(made)
}

const relinked = (schema: Json): Json =>
  JSON.parse(JSON.stringify(schema).replaceAll('"#/$defs/', '"#/components/schemas/')) as Json

const apiKeyErrors = ['invalid_api_key', 'api_key_revoked', 'api_key_expired', 'api_key_scope'] as const

const when = (applies: boolean | undefined, ...codes: ErrorCode[]): ErrorCode[] => (applies ? codes : [])

/** The codes that a call may be refused with, besides those of a service that is not well. */
export function errorCodesOf(entry: Endpoint): ErrorCode[] {
  const { access } = entry
  const isHonored = entry.idempotencyKey === 'honored'
  const codes = new Set<ErrorCode>([
    'invalid_request',
    ...when(access.who !== 'public', 'unauthenticated'),
    ...when(access.who === 'user', 'forbidden', 'mfa_enrollment_required'),
    ...when(access.who === 'user' && access.key, ...apiKeyErrors),
    ...when(entry.params !== undefined, 'not_found'),
    ...when(isHonored, 'idempotency_mismatch', 'idempotency_in_progress'),
    'rate_limited',
    ...when(entry.quota !== undefined, 'quota_exceeded'),
    ...when(entry.readQuery, 'too_many_questions', 'question_too_slow'),
    ...(entry.errors ?? []),
  ])
  return [...codes]
}

/** By status, as references into `responses`: the same refusals are described once. */
function refusalsOf(entry: Endpoint, responses: Json): Json {
  const byStatus = Map.groupBy(errorCodesOf(entry), (code) => errors[code].status)
  return Object.fromEntries([...byStatus].map(([status, same]) => [status, refusal(same, responses)]))
}

function refusal(codes: readonly ErrorCode[], responses: Json): Json {
  const name = codes.map(toPascalCase).join('Or')
  const description = codes.map((code) => `\`${code}\`: ${errors[code].title}`).join('; ')
  responses[name] ??= { description, content: problem }
  return { $ref: `#/components/responses/${name}` }
}

const toPascalCase = (code: string): string =>
  code.replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())

const errorSchema = {
  type: 'object',
  required: ['error', 'code', 'requestId'],
  properties: {
    error: { type: 'string', description: 'Message for people' },
    code: { type: 'string', enum: Object.keys(errors), description: 'Stable code for programs' },
    requestId: { type: 'string' },
    details: { description: 'For invalid_request: the faults, as path and message, at most the first 50' },
    moreDetails: { type: 'integer', description: 'Number of faults that details does not list' },
    retryAfter: { type: 'integer', description: 'Seconds to wait' },
    enrollUrl: { type: 'string', description: 'Where to enroll a factor' },
  },
}
