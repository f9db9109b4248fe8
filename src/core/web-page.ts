import { hash } from 'node:crypto'

/** A page for browsers: one file that loads nothing from elsewhere. */
export type WebPage = { html: string; headers: Readonly<Record<string, string>> }

/** Parts of a page; all of them are HTML. */
type Parts = {
  title: string
  body: string
  /**
   * The only script that runs there. It may connect to the service that the page came from, and nowhere else.
   */
  script?: string
}

export function webPage({ title, body, script }: Parts): WebPage {
  const policy = [
    "default-src 'none'",
    `style-src '${digest(style)}'`,
    ...(script === undefined ? [] : [`script-src '${digest(script)}'`, "connect-src 'self'"]),
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ]
  return {
    html: `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · svc</title><style>${style}</style></head><body>
<header>svc</header>
<main>${body}</main>${script === undefined ? '' : `\n<script>${script}</script>`}</body></html>`,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': policy.join('; '),
      // The addresses of such pages contain codes and tokens.
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    },
  }
}

/** As a Content-Security-Policy names the contents of a tag. */
export const digest = (text: string): string => `sha256-${hash('sha256', text, 'base64')}`

export const escapeHtml = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

const operand = String.raw`(?:"[^"]*"|@?[A-Z]+|…|-(?![\w-]))`
const commandLine = new RegExp(`svc(?: [a-z][a-z-]*){1,2}(?: ${operand}| --[a-z-]+)*`, 'g')

/** Escaped text in which commands are marked up as code. */
export function withCommands(text: string): string {
  let from = 0
  const parts = [...text.matchAll(commandLine)].map(({ 0: found, index }) => {
    const before = text.slice(from, index)
    from = index + found.length
    return `${escapeHtml(before)}<code>${escapeHtml(found)}</code>`
  })
  return parts.join('') + escapeHtml(text.slice(from))
}

/** What went wrong, and how to fix it. `code` is for support. */
export const failureBody = ({
  title,
  message,
  hint,
  code,
  more = '',
}: {
  title: string
  message: string
  hint: string | undefined
  code: string
  /** HTML between the hint and the code. */
  more?: string
}): string => `<h1>${escapeHtml(title)}</h1>
<p role="alert">${escapeHtml(message.replace(/\.$/, ''))}.</p>
${hint === undefined ? '' : `<section aria-labelledby="hint"><h2 id="hint">What to do</h2>\n<p>${withCommands(hint)}</p></section>`}
${more}
<p class="faint">Code: <code>${escapeHtml(code)}</code></p>`

const style = `
:root { color-scheme: light dark; --back: #f4f5f7; --card: #fff; --text: #1b1f24; --faint: #57606a; --line: #d5d9de; --mark: #0b57c2; --on: #fff; --code: #eef0f3; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --back: #101418; --card: #191e24; --text: #e7ebef; --faint: #a3adb8; --line: #333b44; --mark: #8ab8ff; --on: #0c1a2e; --code: #262d35; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; padding: 2rem 1rem; background: var(--back); color: var(--text); font: 16px/1.55 system-ui, sans-serif; display: flex; flex-direction: column; align-items: center; justify-content: center }
header { width: min(34rem, 100%); padding: 0 .25rem .6rem; font: 700 1rem ui-monospace, monospace; color: var(--faint) }
main { width: min(34rem, 100%); padding: 1.75rem 2rem; background: var(--card); border: 1px solid var(--line); border-radius: 12px; overflow-wrap: anywhere }
h1 { margin: 0 0 .75rem; font-size: 1.5rem; line-height: 1.25 } h1:focus { outline: none }
h2 { margin: 1.25rem 0 .25rem; font-size: 1rem } p { margin: .5rem 0 } h2 + p { margin-top: .25rem }
[role=alert] { color: var(--bad); font-weight: 600 }
a { color: var(--mark) } .faint { color: var(--faint); font-size: .875rem; margin-top: 1.25rem } .faint + .faint { margin-top: .25rem }
code { -webkit-box-decoration-break: clone; box-decoration-break: clone; padding: .1em .35em; border-radius: 4px; background: var(--code); font: .9em ui-monospace, monospace }
pre { margin: .5rem 0; padding: .7rem .9rem; border-radius: 8px; background: var(--code); white-space: pre-wrap } pre code { padding: 0; background: none }
.button { display: inline-block; margin-top: .75rem; padding: .55rem 1.1rem; border: 0; border-radius: 8px; background: var(--mark); color: var(--on); font: inherit; font-weight: 600; text-decoration: none; cursor: pointer }
.button:disabled { opacity: .6; cursor: default } :is(a, button, input):focus-visible { outline: 3px solid var(--mark); outline-offset: 2px }
label { display: block; margin: .75rem 0 0; font-weight: 600 } [role=alert]:empty { display: none } [hidden] { display: none }
input { display: block; width: 100%; margin-top: .25rem; padding: .55rem .7rem; border: 1px solid var(--faint); border-radius: 8px; background: var(--back); color: inherit; font: inherit }
@media (max-width: 30rem) { main { padding: 1.25rem } }
`
