import { setImmediate as nextTurn } from 'node:timers/promises'

const mark = '[redacted]'

/**
 * Text that every known kind of secret contains. Few messages contain it; the patterns below are not tried on
 * others. Every pattern takes linear time: repetitions are bounded, or start only where the text before does
 * not continue them.
 */
const hint =
  /svc_|eyJ|-----BEGIN|AKIA|ASIA|gh[pousr]_|xox[abeprs]-|:\/\/|bearer|key|pass|pwd|secret|token|credential|authorization|cookie/i

/** Names whose value is a secret, also at the end of a longer name: DB_PASSWORD, client_secret, x-api-key. */
const names =
  'pass(?:word|wd|phrase|code)|(?<![a-z])pass|pwd|secret|token|credentials?|(?:api|access|private|secret|account|shared|signing|encryption)[ _-]?key'

/**
 * A quoted text, closed or not; text with escaped quotes inside another quoted text; otherwise up to a
 * separator.
 */
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

/** A lower-case word after "bearer", as in "bearer authentication", is not a token. */
const unlessWord = (whole: string, before: string, token: string) =>
  /^[a-z]+[.]?$/.test(token) ? whole : before + mark

const steps: readonly ((text: string) => string)[] = [
  (text) => text.replace(privateKey, mark),
  (text) => text.replace(urlPassword, `://$1:${mark}@`),
  (text) => text.replace(urlToken, `://${mark}@`),
  (text) => text.replace(header, `$1${mark}`),
  (text) => text.replace(cookie, `$1${mark}`),
  (text) => text.replace(scheme, unlessWord),
  (text) => text.replace(pair, `$1${mark}`),
  (text) => text.replace(argument, `$1${mark}`),
  (text) => text.replace(hexKey, `$1${mark}`),
  (text) => text.replace(known, mark),
]

/** Redacts recognizable secrets in a text. */
export function redactText(text: string): string {
  return hint.test(text) ? steps.reduce((cleaned, step) => step(cleaned), text) : text
}

/** Longer texts are processed one pattern per turn of the event loop, so that other work is not blocked. */
const long = 256 * 1024

/** The same for a text of megabytes. */
export async function redactTextInTurns(text: string): Promise<string> {
  if (text.length <= long || !hint.test(text)) return redactText(text)
  let cleaned = text
  for (const step of steps) {
    await nextTurn()
    cleaned = step(cleaned)
  }
  return cleaned
}

const secretName = new RegExp(`(?:${names}|authorization|cookie)s?$`, 'i')

type Data = Record<string, unknown>

/** The same for data: the whole value of a field with a secret's name is redacted. */
export function redactData<D extends Data | null>(data: D): D {
  return data && (cleaned(data) as D)
}

function cleaned(value: unknown): unknown {
  if (typeof value === 'string') return redactText(value)
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map(cleaned)
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      redactText(name),
      secretName.test(name) ? concealed(one) : cleaned(one),
    ]),
  )
}

/** null, a boolean or an empty text is not a secret. */
function concealed(value: unknown): unknown {
  if (value === null || typeof value === 'boolean' || value === '') return value
  if (Array.isArray(value)) return value.map(concealed)
  if (typeof value !== 'object') return mark
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [redactText(name), concealed(one)]))
}

/** The same for data of megabytes. */
export async function redactDataInTurns(data: Data): Promise<Data> {
  let characters = 0
  const turn = async (text: string): Promise<string> => {
    characters += text.length
    if (characters > long) {
      characters = 0
      await nextTurn()
    }
    return redactTextInTurns(text)
  }
  const clean = async (value: unknown): Promise<unknown> => {
    if (typeof value === 'string') return turn(value)
    if (value === null || typeof value !== 'object') return value
    if (Array.isArray(value)) {
      const items: unknown[] = []
      for (const item of value) items.push(await clean(item))
      return items
    }
    const fields: [string, unknown][] = []
    for (const [name, one] of Object.entries(value)) {
      const kept = secretName.test(name) ? concealed(one) : await clean(one)
      fields.push([await turn(name), kept])
    }
    return Object.fromEntries(fields)
  }
  return (await clean(data)) as Data
}
