import type { z } from 'zod'
import { type Endpoint, keyRefusal, routeOf } from '../../src/core/endpoint.ts'
import { errors } from '../../src/core/errors.ts'
import { errorCodesOf, exampleOf, toJsonSchema } from '../../src/core/openapi.ts'
import { escapeHtml } from '../../src/core/web-page.ts'
import { type CommandExamples, curlOf } from './examples.ts'

type Json = Record<string, unknown>

/** One endpoint: what it is for, who may call it, its fields, how it is called, and its errors. */
export function articleOf(name: string, entry: Endpoint, commands: CommandExamples): string {
  const { method, path, summary, params, query, body, example } = entry
  const command = commands.get(routeOf(entry))
  const id = escapeHtml(name)
  return `<article id="${id}">
<h2><a href="#${id}"><span class="method">${method}</span> <code>${breakable(path)}</code></a></h2>
<p>${escapeHtml(summary)}. ${needsOf(entry)}${keyRefusal(entry) === undefined ? ' Takes an Idempotency-Key.' : ''}</p>
${codeOf('With curl', curlOf(entry))}
${command === undefined ? '' : codeOf('With svc', command)}
${fieldsOf('Path', params)}${fieldsOf('Query', query)}${fieldsOf('Body', body)}
${example ? codeOf('Example of a body', JSON.stringify(exampleOf(entry), null, 2)) : ''}
${answerOf(entry)}
${errorsOf(entry)}
</article>`
}

/** A path that a narrow screen may break after each slash. */
export const breakable = (path: string): string => escapeHtml(path).replaceAll('/', '/<wbr>')

const codeOf = (title: string, text: string): string =>
  `<figure><figcaption>${title}</figcaption><pre tabindex="0"><code>${escapeHtml(text)}</code></pre></figure>`

function errorsOf(entry: Endpoint): string {
  const codes = errorCodesOf(entry).sort((a, b) => errors[a].status - errors[b].status)
  const rows = codes.map(
    (code) =>
      `<tr><td>${errors[code].status}</td><td><code>${code}</code></td><td>${escapeHtml(errors[code].title)}</td></tr>`,
  )
  return `<details><summary>Errors</summary><table><thead><tr><th>Status</th><th>Code</th><th>Meaning</th></tr></thead><tbody>${rows.join('')}</tbody></table></details>`
}

function answerOf({ bytes, streams, status = 200, reply }: Endpoint): string {
  if (bytes) return `<p>Answers ${status} with a file, 206 with a part of it, or 302 to where it is.</p>`
  if (!streams) return fieldsOf(`Answer ${status}`, reply)
  return `<p>Answers ${status} with a stream of <code>${streams.join('</code>, <code>')}</code>.</p>`
}

function needsOf({ access }: Endpoint): string {
  if (access.who === 'public') return 'Open to everyone.'
  if (access.who === 'agent') return 'For the agent itself, with its token.'
  const needs = [
    access.permission && `permission <code>${access.permission}</code>`,
    access.mfa && 'a verified second factor',
    access.wholePartner && 'all organizations of their partner',
    access.wholeOrganization && 'all sites and device groups of their organization',
  ]
  const named = needs.filter(Boolean).join(' and ')
  const keys = access.key ? ' Also for API keys whose scopes hold it.' : ''
  const inFiles = access.workload === 'files' ? ', in files that they apply' : ''
  const workloads = access.workload ? ` Also for workloads whose trust policy names it${inFiles}.` : ''
  return `For users in ${access.scopes.join(', ')} scope${named ? `, with ${named}` : ''}.${keys}${workloads}`
}

function fieldsOf(title: string, schema: z.ZodType | undefined): string {
  if (!schema) return ''
  const made = toJsonSchema(schema, title.startsWith('Answer') ? 'output' : 'input')
  const { properties, required = [] } = resolved(made, made) as {
    properties?: Record<string, Json>
    required?: string[]
  }
  if (!properties) return ''
  const rows = Object.entries(properties).map(([field, one]) => {
    const must = required.includes(field) ? '' : ' <span class="faint">optional</span>'
    return `<tr><td><code>${escapeHtml(field)}</code>${must}</td><td>${escapeHtml(typeOf(one, made))}</td><td>${escapeHtml(noteOf(one))}</td></tr>`
  })
  return `<table><caption>${title}</caption><thead><tr><th>Field</th><th>Type</th><th></th></tr></thead><tbody>${rows.join('')}</tbody></table>`
}

const resolved = (schema: Json, root: Json): Json =>
  typeof schema.$ref === 'string'
    ? ((root.$defs as Record<string, Json>)[schema.$ref.slice('#/$defs/'.length)] ?? {})
    : schema

function typeOf(schema: Json, root: Json): string {
  if (typeof schema.$ref === 'string') return schema.$ref.slice('#/$defs/'.length)
  if (Array.isArray(schema.anyOf)) return schema.anyOf.map((one) => typeOf(one as Json, root)).join(' or ')
  if (Array.isArray(schema.enum)) return schema.enum.join(', ')
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  if (schema.type === 'array') return `list of ${typeOf((schema.items ?? {}) as Json, root)}`
  const type = Array.isArray(schema.type) ? schema.type.join(' or ') : String(schema.type ?? 'any')
  return schema.format ? `${type} (${schema.format})` : type
}

function noteOf({ description, minimum, maximum, minLength, maxLength, default: otherwise }: Json): string {
  const range = (low: unknown, high: unknown, unit: string) =>
    high === undefined || Number(high) > 1e14 ? undefined : `${low ?? 0} to ${high}${unit}`
  const notes = [
    description,
    range(minimum, maximum, ''),
    range(minLength, maxLength, ' characters'),
    otherwise === undefined ? undefined : `default ${JSON.stringify(otherwise)}`,
  ]
  return notes.filter((note) => note !== undefined).join('; ')
}
