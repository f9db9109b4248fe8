import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Contract, type Endpoint, entriesOf } from '../../src/core/endpoint.ts'
import { digest, escapeHtml } from '../../src/core/web-page.ts'
import { articleOf, breakable } from './article.ts'
import { commandExamples } from './examples.ts'
import { searchScript, style } from './looks.ts'

export type DocsPage = { html: string; csp: string }

type Named = { name: string; entry: Endpoint }
type Section = { tag: string; slug: string; about: string; entries: Named[] }

/**
 * The reference of the API, from its contract: an index with a search, and a page per tag. `sections` describes tags. Pages are
 * made when they are first asked for, each endpoint in a turn of the event loop, and load nothing from outside.
 */
export function docsPages(
  contract: Contract,
  { version, sections }: { version: string; sections: Readonly<Record<string, string>> },
): (slug: string | undefined) => Promise<DocsPage> | undefined {
  const byTag = Map.groupBy(entriesOf(contract), ({ entry }) => entry.tag)
  const all = [...byTag].map(([tag, entries]) => ({
    tag,
    slug: slugOf(tag),
    about: sections[tag] ?? '',
    entries,
  }))
  const pages = new Map<string | undefined, Promise<DocsPage>>()
  let commands: ReturnType<typeof commandExamples> | undefined
  const pageOf = async (section: Section) => {
    commands ??= commandExamples()
    return tagPage(section, all, version, await commands)
  }
  return (slug) => {
    const section = all.find((one) => one.slug === slug)
    if (slug !== undefined && section === undefined) return undefined
    if (!pages.has(slug))
      pages.set(slug, section ? pageOf(section) : Promise.resolve(indexPage(all, version)))
    return pages.get(slug)
  }
}

function indexPage(all: readonly Section[], version: string): DocsPage {
  const sections = all.map(
    ({ tag, slug, about, entries }) => `<section>
<h2><a href="/docs/${slug}">${escapeHtml(tag)}</a></h2>${about && `<p class="faint">${escapeHtml(about)}</p>`}
<ul class="endpoints">${entries.map((one) => itemOf(slug, one)).join('\n')}</ul></section>`,
  )
  return page({
    title: 'svc API',
    nav: navOf(all),
    script: searchScript,
    main: `<h1>svc API <small>${escapeHtml(version)}</small></h1>
<p>Every path is below <code>/api/v1</code>. Send an access token as <code>Authorization: Bearer …</code>, or an
API key as <code>X-API-Key</code> where it is taken. Where it says so, a request that is sent again with the same
<code>Idempotency-Key</code> within 24 hours happens once; everywhere else the header is refused. Failures are
<code>{"error", "code", "requestId", "details"?, "retryAfter"?}</code>. For programs: <a href="/api/v1/openapi.json">OpenAPI 3.1</a>.</p>
<form role="search" hidden><label for="search">Search the endpoints</label>
<input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="device, POST, /orgs …  (press /)"></form>
<p role="status"></p>
${sections.join('\n')}`,
  })
}

const itemOf = (slug: string, { name, entry: { method, path, summary } }: Named): string =>
  `<li><a href="/docs/${slug}#${escapeHtml(name)}"><span class="method">${method}</span> <code>${breakable(path)}</code></a> <span class="faint">${escapeHtml(summary)}</span></li>`

async function tagPage(
  { tag, about, entries }: Section,
  all: readonly Section[],
  version: string,
  commands: Awaited<ReturnType<typeof commandExamples>>,
): Promise<DocsPage> {
  const articles: string[] = []
  for (const { name, entry } of entries) {
    articles.push(articleOf(name, entry, commands))
    await nextTurn()
  }
  const contents = entries.map(
    ({ name, entry: { summary } }) => `<li><a href="#${escapeHtml(name)}">${escapeHtml(summary)}</a></li>`,
  )
  return page({
    title: `${tag} · svc API`,
    nav: navOf(all, tag),
    main: `<h1>${escapeHtml(tag)} <small>svc API ${escapeHtml(version)}</small></h1>${about && `<p>${escapeHtml(about)}</p>`}
<ul>${contents.join('')}</ul>
${articles.join('\n')}`,
  })
}

const navOf = (all: readonly Section[], current?: string): string => {
  const items = all.map(
    ({ tag, slug }) =>
      `<li><a href="/docs/${slug}"${tag === current ? ' aria-current="page"' : ''}>${escapeHtml(tag)}</a></li>`,
  )
  const index = `<li><a href="/docs"${current === undefined ? ' aria-current="page"' : ''}>All endpoints</a></li>`
  return `<nav aria-label="Contents"><ul>${index}${items.join('')}</ul></nav>`
}

const slugOf = (tag: string): string => tag.toLowerCase().replaceAll(/\W+/g, '-')

function page({ title, nav, main, script }: Record<'title' | 'nav' | 'main', string> & { script?: string }) {
  const html = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title><style>${style}</style></head><body>${nav}
<main>${main}</main>${script === undefined ? '' : `\n<script>${script}</script>`}</body></html>`
  const policy = [
    "default-src 'none'",
    `style-src '${digest(style)}'`,
    ...(script === undefined ? [] : [`script-src '${digest(script)}'`]),
    "form-action 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
  ]
  return { html, csp: policy.join('; ') }
}
