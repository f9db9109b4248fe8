import { type ErrorCode, errors } from '../../src/core/errors.ts'
import type { Answer } from './wire.ts'

/** Signs of internals: stacks, files, SQL, names of libraries and their errors. */
const inside =
  /\n\s*at |node_modules|\/work\/|\.[jt]s:\d|\b(select|insert into|update|delete from) .*\b(from|set|values|where)\b|SQLITE|sqlite|postgres|kysely|fastify|FST_|zod|(Type|Range|Syntax|Reference)Error|undefined|\[object/i

/** What is wrong with an error response, if anything. */
export function faultOf(
  { status, headers, text }: Answer,
  { path }: { path?: string } = {},
): string | undefined {
  if (status < 400 || status >= 500) return `answered ${status}: ${text.slice(0, 300)}`
  if (inside.test(text)) return `shows the inside: ${text.slice(0, 300)}`
  let body: Record<string, unknown>
  try {
    body = JSON.parse(text) as Record<string, unknown>
  } catch {
    return `is not JSON: ${text.slice(0, 300)}`
  }
  const { error, code, requestId, details, moreDetails: _, ...rest } = body
  if (typeof error !== 'string' || error === '') return `says no error: ${text}`
  if (!(String(code) in errors)) return `has no known code: ${text}`
  if (errors[code as ErrorCode].status !== status) return `is ${status} with ${code}`
  if (typeof requestId !== 'string' || requestId !== headers['x-request-id'])
    return `has no request id: ${text}`
  const extra = Object.keys(rest).filter((key) => key !== 'retryAfter' && key !== 'enrollUrl')
  if (extra.length > 0) return `says more than it should: ${extra.join()}`
  if (code !== 'invalid_request')
    return path === undefined ? undefined : `is ${code} and not a fault at ${path}`
  const faults = Array.isArray(details) ? (details as { path?: unknown; message?: unknown }[]) : []
  const named = faults.length > 0 && faults.every((it) => isText(it.path) && isText(it.message))
  if (!named) return `names no fault: ${text.slice(0, 300)}`
  const pointed =
    path === undefined || faults.some((it) => `${it.path}.`.startsWith(`${path}.`) || it.path === path)
  return pointed ? undefined : `does not point at ${path}: ${text.slice(0, 300)}`
}

const isText = (value: unknown): boolean => typeof value === 'string' && value !== ''
