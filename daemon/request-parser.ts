import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Endpoint } from '../src/core/endpoint.ts'
import { type Fault, invalid } from '../src/core/errors.ts'
import { safeParse } from '../src/core/schema.ts'
import { withCookieToken } from './browser.ts'
import type { Origins } from './cors.ts'
import { readIdempotencyKey } from './idempotency.ts'

const nothing = z.strictObject({})
const noBody = nothing.optional()

export type Part = 'params' | 'query' | 'body'
type Parsed = Record<Part, unknown> & { key: string | undefined }

/** Parses the parts of a request with their schemas, and adds all faults. */
export function partsParserOf(
  entry: Endpoint,
): (given: Record<Part, unknown>, faults: Fault[]) => Record<Part, unknown> {
  const schemas = {
    params: entry.params ?? nothing,
    query: entry.query ?? nothing,
    body: entry.body ?? noBody,
  }
  return (given, faults) => {
    const through = (part: Part) => {
      const value = given[part]
      const result = safeParse(schemas[part], value)
      if (result.success) return result.data
      // No spread into push(): there may be more faults than a call can have arguments.
      for (const issue of result.error.issues) {
        for (const fault of faultsOf(part, issue, value)) faults.push(fault)
      }
      return undefined
    }
    return { params: through('params'), query: through('query'), body: through('body') }
  }
}

/** The same for a request; all faults are reported together. @throws invalid_request */
export function parserOf(entry: Endpoint, origins: Origins): (request: FastifyRequest) => Parsed {
  const parse = partsParserOf(entry)
  return (request) => {
    const faults: Fault[] = []
    const { params, query } = request
    const body = withHeaders(entry, request, withCookieToken(entry, request, origins)) ?? undefined
    const parts = parse({ params, query, body }, faults)
    const key = readIdempotencyKey(entry, request.headers['idempotency-key'], faults)
    if (faults.length > 0) throw invalid(faults)
    return { ...parts, key }
  }
}

/** Adds fields that come as headers to the body. */
function withHeaders({ headers }: Endpoint, request: FastifyRequest, body: unknown): unknown {
  if (headers === undefined || body === null || typeof body !== 'object' || Array.isArray(body)) return body
  const whole: Record<string, unknown> = { ...body }
  for (const [header, field] of Object.entries(headers)) {
    const said = request.headers[header]
    if (typeof said === 'string' && said !== '') whole[field] ??= said.replace(/^bearer +/i, '')
  }
  return whole
}

function faultsOf(part: string, issue: z.core.$ZodIssue, value: unknown): Fault[] {
  const path = [part, ...issue.path.map(String)].join('.')
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ path: `${path}.${key}`, message: 'is not a known field' }))
  }
  if (issue.code === 'invalid_type' && isMissing(value, issue.path)) return [{ path, message: 'is required' }]
  return [{ path, message: issue.message }]
}

const isMissing = (value: unknown, path: readonly PropertyKey[]): boolean =>
  path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | undefined)?.[key], value) ===
  undefined
