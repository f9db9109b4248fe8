import type { MailMessage } from './ports.ts'

/** A paragraph, or a link on its own line. */
export type MessagePart = string | { label: string; url: string }

/** The same content as plain text and as HTML. `subject` and paragraphs may contain user input. */
export function compose(
  kind: string,
  { to, name }: { to: string; name: string },
  subject: string,
  parts: readonly MessagePart[],
): MailMessage {
  const greeting = harmless(name) === '' ? 'Hello,' : `Hello ${harmless(name)},`
  const all = [greeting, ...parts].map((part) => (typeof part === 'string' ? harmless(part) : part))
  return {
    to,
    kind,
    subject: harmless(subject),
    text: `${all.map(asText).join('\n\n')}\n`,
    html: page(all.map(asHtml).join('\n')),
    links: all.flatMap((part) => (typeof part === 'string' ? [] : [part.url])),
  }
}

/**
 * A name chosen by a stranger must not add lines or headers, reverse the text direction, or fill the mail with its
 * own paragraphs.
 */
const harmless = (text: string): string =>
  text.replace(/[\p{Cc}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\s]+/gu, ' ').trim()

const asText = (part: MessagePart): string =>
  typeof part === 'string' ? part : `${part.label}:\n${part.url}`

const styles = {
  body: 'margin:0;padding:24px;font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#ffffff',
  letter: 'max-width:34em;margin:0 auto',
  button:
    'display:inline-block;padding:10px 18px;border-radius:6px;background:#1d4ed8;color:#ffffff;text-decoration:none',
  address: 'font-size:13px;color:#555555;word-break:break-all',
}

function asHtml(part: MessagePart): string {
  if (typeof part === 'string') return `<p>${escaped(part)}</p>`
  const url = escaped(part.url)
  return (
    `<p><a href="${url}" style="${styles.button}">${escaped(part.label)}</a></p>\n` +
    `<p style="${styles.address}">${url}</p>`
  )
}

function page(content: string): string {
  return (
    `<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"></head>\n<body style="${styles.body}">\n` +
    `<div style="${styles.letter}">\n${content}\n</div>\n</body>\n</html>\n`
  )
}

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escaped = (text: string): string => text.replace(/[&<>"']/g, (letter) => entities[letter]!)
