import { createHash } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { z } from 'zod'
import { type Contract, type Endpoint, entriesOf, keyRefusal } from '../src/core/endpoint.ts'
import { exampleOf, toJsonSchema } from '../src/core/openapi.ts'
import { escapeHtml } from '../src/core/web-page.ts'

type Json = Record<string, unknown>

export type DocsPage = { html: string; csp: string }

/**
 * The reference page of `/docs`: one HTML file from the contract, without scripts or anything from outside. It takes some
 * 100 ms, so others get their turn after each section.
 */
export async function docsPage(contract: Contract, version: string): Promise<DocsPage> {
  const entries = entriesOf(contract)
  const tags = [...new Set(entries.map(({ entry }) => entry.tag))]
  const sections: string[] = []
  for (const tag of tags) {
    const ofTag = entries.filter(({ entry }) => entry.tag === tag)
    sections.push(sectionOf(tag, ofTag))
    await nextTurn()
  }
  const html = page(`
<nav aria-label="Contents"><ul>${tags.map((tag) => `<li><a href="#${anchor(tag)}">${escapeHtml(tag)}</a></li>`).join('')}</ul></nav>
<main>
<h1>svc API <small>${escapeHtml(version)}</small></h1>
<p>Every path is below <code>/api/v1</code>. Send an access token as <code>Authorization: Bearer …</code>, or an
API key as <code>X-API-Key</code> where it is taken. Where it says so, a request that is sent again with the same
<code>Idempotency-Key</code> within 24 hours happens once; everywhere else the header is refused. Failures are
<code>{"error", "code", "requestId", "details"?, "retryAfter"?}</code>. For programs: <a href="/api/v1/openapi.json">OpenAPI 3.1</a>.</p>
${sections.join('\n')}
</main>`)
  const styleHash = createHash('sha256').update(style).digest('base64')
  return {
    html,
    csp: `default-src 'none'; style-src 'sha256-${styleHash}'; frame-ancestors 'none'; base-uri 'none'`,
  }
}

function sectionOf(tag: string, entries: { name: string; entry: Endpoint }[]): string {
  const articles = entries.map(({ name, entry }) => articleOf(name, entry))
  return `<section id="${anchor(tag)}"><h2>${escapeHtml(tag)}</h2>\n${articles.join('\n')}</section>`
}

function articleOf(name: string, entry: Endpoint): string {
  const { method, path, summary, params, query, body, example } = entry
  return `<article id="${escapeHtml(name)}">
<h3><span class="method">${method}</span> <code>${escapeHtml(path)}</code></h3>
<p>${escapeHtml(summary)}. ${needsOf(entry)}${keyRefusal(entry) === undefined ? ' Takes an Idempotency-Key.' : ''}</p>
${fieldsOf('Path', params)}${fieldsOf('Query', query)}${fieldsOf('Body', body)}
${example ? `<pre><code>${escapeHtml(JSON.stringify(exampleOf(entry), null, 2))}</code></pre>` : ''}
${answerOf(entry)}
</article>`
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
  const workloads = access.workload ? ' Also for workloads whose trust policy names it.' : ''
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

const anchor = (text: string): string => text.toLowerCase().replaceAll(/\W+/g, '-')

const style = `
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent) }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; display: grid; grid-template-columns: 14rem minmax(0, 60rem) }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; padding: 1rem; box-sizing: border-box }
nav ul { list-style: none; margin: 0; padding: 0 } nav li { margin: .4rem 0 }
main { padding: 1rem 2rem 6rem } h1 small, .faint { opacity: .65; font-weight: normal; font-size: .85em }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line) } h3 { margin: 2.5rem 0 .25rem; font-size: 1.05rem }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700 }
code, pre { font: .92em/1.5 ui-monospace, monospace } pre { padding: .75rem; overflow: auto; border: 1px solid var(--line); border-radius: 6px }
table { border-collapse: collapse; width: 100%; margin: .75rem 0 } caption { text-align: left; font-weight: 600 }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line) } td:first-child { white-space: nowrap }
@media (max-width: 50rem) { body { display: block } nav { position: static; height: auto } main { padding: 1rem } td:first-child { white-space: normal } }
`

const page = (body: string): string => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>svc API</title><style>${style}</style></head><body>${body}</body></html>`
