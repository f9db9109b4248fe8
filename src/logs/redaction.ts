const mark = '[redacted]'

/**
 * What any secret we know has somewhere. Nearly no message does, and the patterns below are not tried on those.
 * Every pattern is linear in the text: what repeats is bounded, or starts only where its like does not go on before it.
 */
const hint =
  /svc_|eyJ|-----BEGIN|AKIA|ASIA|gh[pousr]_|xox[abeprs]-|:\/\/|bearer|key|pass|pwd|secret|token|credential|authorization|cookie/i

/** Names whose value is a secret, as the end of a longer name too: DB_PASSWORD, client_secret, x-api-key. */
const names =
  'pass(?:word|wd|phrase|code)|(?<![a-z])pass|pwd|secret|token|credentials?|(?:api|access|private|secret|account|shared|signing|encryption)[ _-]?key'

/** A quoted text with its end or without; quoted within a text that is quoted itself; else up to a break. */
const value = String.raw`"(?:[^"\\]|\\[\s\S]?)*(?:"|$)|'[^'\r\n]*(?:'|$)|\\{1,3}"[^"\\]*|[^\s,;&"'<>(){}[\]\\]+`
const gap = String.raw`\\{0,3}["']?\s{0,3}(?::=|=>|[:=>])\s{0,3}`

const privateKey =
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)/g
const urlPassword = /:\/\/([^\s:@/?#"']{0,256}):[^\s/"']{1,256}@/g
const urlToken = /:\/\/[\w~.-]{20,256}@/g
const header = new RegExp(
  String.raw`((?:proxy-)?authorization${gap}\\{0,3}["']?)(?:[a-z]{1,20}[ \t]{1,3})?[^\s"',;\\]+`,
  'gi',
)
const cookie = new RegExp(String.raw`(cookie${gap}\\{0,3}["']?)[^\r\n"\\]+`, 'gi')
const scheme = /\b((?:bearer|basic)[ \t]{1,3})([\w.~+/=-]{8,})/gi
const pair = new RegExp(`((?:${names})${gap})(?:${value})`, 'gi')
const argument = new RegExp(String.raw`(--[a-z-]{0,40}(?:${names})[ \t]{1,3})(?:${value})`, 'gi')
const hexKey = /(key\\{0,3}["']?\s{0,3}[:=]?\s{0,3}\\{0,3}["']?)[0-9a-f]{64}(?![0-9a-f])/gi
const known =
  /\b(?:svc_[\w-]{16,}|gh[pousr]_\w{20,}|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b)|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{5,}(?:\.[\w-]*)?/g

/** A word that a sentence goes on with, "bearer authentication", is no token. */
const unlessWord = (whole: string, before: string, token: string) =>
  /^[a-z]+[.]?$/.test(token) ? whole : before + mark

/** The text without the secrets that can be told from it. */
export function redacted(text: string): string {
  if (!hint.test(text)) return text
  return text
    .replace(privateKey, mark)
    .replace(urlPassword, `://$1:${mark}@`)
    .replace(urlToken, `://${mark}@`)
    .replace(header, `$1${mark}`)
    .replace(cookie, `$1${mark}`)
    .replace(scheme, unlessWord)
    .replace(pair, `$1${mark}`)
    .replace(argument, `$1${mark}`)
    .replace(hexKey, `$1${mark}`)
    .replace(known, mark)
}

const secretName = new RegExp(`(?:${names}|authorization|cookie)s?$`, 'i')

type Data = Record<string, unknown>

/** The same for data: what has the name of a secret goes whole. */
export function redactedData<D extends Data | null>(data: D): D {
  return data && (cleaned(data) as D)
}

function cleaned(value: unknown): unknown {
  if (typeof value === 'string') return redacted(value)
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map(cleaned)
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      redacted(name),
      secretName.test(name) ? concealed(one) : cleaned(one),
    ]),
  )
}

/** That something is not there, or is or is not so, is no secret. */
function concealed(value: unknown): unknown {
  if (value === null || typeof value === 'boolean' || value === '') return value
  if (Array.isArray(value)) return value.map(concealed)
  if (typeof value !== 'object') return mark
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [redacted(name), concealed(one)]))
}
