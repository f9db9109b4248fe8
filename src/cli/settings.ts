import { type ConfigFile, type Context, getContext, readConfig, type StoreKind } from './config-file.ts'
import { usageError } from './exit-codes.ts'

type SettingLayer = 'flag' | 'env' | 'context' | 'default'

/** A setting, its source, and the values of the other layers. */
export type Setting<T> = {
  value: T
  from: SettingLayer
  source: string
  layers: { layer: SettingLayer; source: string; value: unknown }[]
}

/** Settings given by flags. */
export type FlagSettings = {
  url?: string | undefined
  context?: string | undefined
  org?: string | undefined
  token?: string | undefined
  timeout?: string | undefined
  'no-input'?: boolean | undefined
}

export type Settings = {
  url: Setting<string>
  context: Setting<string | undefined>
  org: Setting<string | undefined>
  timeout: Setting<number>
  noInput: Setting<boolean>
  debug: Setting<boolean>
  caFile: Setting<string | undefined>
  store: Setting<StoreKind | undefined>
  profile: ConfigFile
  /** The current context, if its URL is used: then its session and defaults apply. */
  active: { name: string; context: Context } | undefined
}

const defaultUrl = 'http://127.0.0.1:3000'

/** Of `--org`: all organizations that one can see, whatever the context says. No slug is like it. */
const everyOrg = '*'

/** Flag over environment over context over default. */
export function resolveSettings(
  flags: FlagSettings,
  { mayBeNew = false, env = process.env }: { mayBeNew?: boolean; env?: NodeJS.ProcessEnv } = {},
): Settings {
  const profile = readConfig()
  const context = firstSet<string | undefined>(
    ['flag', '--context', flags.context],
    ['env', 'SVC_CONTEXT', env.SVC_CONTEXT || undefined],
    ['context', 'the context in use', profile.current],
  )
  const isNew = mayBeNew && context.value !== undefined && !Object.hasOwn(profile.contexts, context.value)
  const named = context.value === undefined || isNew ? undefined : getContext(profile, context.value)
  const url = firstSet<string>(
    ['flag', '--url', flags.url],
    ['env', 'SVC_URL', env.SVC_URL || undefined],
    ['context', `context ${context.value}`, named?.url],
    ['default', 'the default', defaultUrl],
  )
  // The variable of a script that is empty must not mean every organization.
  if (flags.org?.trim() === '')
    throw usageError('--org is empty', "leave it out, or name all that you can see: --org '*'")
  const address = { ...url, value: checkUrl(url.value, url.source) }
  const active = activeContext(profile, context, address.value)
  // An API key has its own organization, independent of the context.
  const ofPerson = apiKeyFrom(flags, env) === undefined
  return {
    profile,
    context,
    active,
    url: address,
    org: firstSet<string | undefined>(
      ['flag', '--org', flags.org === everyOrg ? '' : flags.org],
      ['env', 'SVC_ORG', env.SVC_ORG || undefined],
      ['context', `context ${active?.name}`, ofPerson ? active?.context.org : undefined],
      ['context', `sign-in of ${active?.name}`, (ofPerson && active?.context.identity?.orgId) || undefined],
    ),
    timeout: parsed(
      firstSet<string>(
        ['flag', '--timeout', flags.timeout],
        ['env', 'SVC_TIMEOUT', env.SVC_TIMEOUT || undefined],
        ['default', 'the default', '30s'],
      ),
      parseDuration,
    ),
    noInput: firstSet<boolean>(
      ['flag', '--no-input', flags['no-input'] || undefined],
      ['env', 'SVC_NO_INPUT', isTruthy(env.SVC_NO_INPUT) || undefined],
      ['env', 'CI', isTruthy(env.CI) || undefined],
      ['default', 'the default', false],
    ),
    debug: firstSet<boolean>(
      ['env', 'SVC_DEBUG', isTruthy(env.SVC_DEBUG) || undefined],
      ['default', 'the default', false],
    ),
    caFile: firstSet<string | undefined>(['env', 'SVC_CA_FILE', env.SVC_CA_FILE || undefined]),
    store: firstSet<StoreKind | undefined>(
      ['env', 'SVC_CREDENTIAL_STORE', parseStoreKind(env.SVC_CREDENTIAL_STORE)],
      ['context', 'the remembered choice', profile.store],
    ),
  }
}

/** The API key to use instead of a session, unless a token is given. */
export function apiKeyFrom(
  flags: { token?: string | undefined },
  env: NodeJS.ProcessEnv = process.env,
): string | undefined {
  const hasToken = flags.token !== undefined || Boolean(env.SVC_TOKEN)
  return hasToken ? undefined : env.SVC_API_KEY?.trim() || undefined
}

function firstSet<T>(...layers: [SettingLayer, string, T | undefined][]): Setting<T> {
  const won = layers.find(([, , value]) => value !== undefined)
  return {
    value: won?.[2] as T,
    from: won?.[0] ?? 'default',
    source: won?.[1] ?? 'the default',
    layers: layers.map(([layer, source, value]) => ({ layer, source, value: value ?? null })),
  }
}

const parsed = <A, B>(setting: Setting<A>, parse: (value: A, source: string) => B): Setting<B> => ({
  ...setting,
  value: parse(setting.value, setting.source),
})

/** A session is sent only to the address that issued it. */
function activeContext(
  profile: ConfigFile,
  chosen: Setting<string | undefined>,
  url: string,
): Settings['active'] {
  const fits = (name: string) => isSameUrl(profile.contexts[name]?.url, url)
  const name =
    chosen.value !== undefined && fits(chosen.value)
      ? chosen.value
      : chosen.from === 'context' || chosen.from === 'default'
        ? Object.keys(profile.contexts).find(fits)
        : undefined
  return name === undefined ? undefined : { name, context: profile.contexts[name]! }
}

export const isSameUrl = (a: string | undefined, b: string): boolean =>
  a !== undefined &&
  URL.canParse(a) &&
  new URL(a).href.replace(/\/+$/, '') === new URL(b).href.replace(/\/+$/, '')

export function checkUrl(text: string, source: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:')) {
    throw usageError(`${source} is not a URL: ${text}`, 'such as https://svc.example.com')
  }
  if (url.username || url.password) throw usageError(`${source} must not carry a password`, 'use svc login')
  return url.href.replace(/\/+$/, '')
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, '': 1000 }

/** `30`, `30s`, `500ms` or `2m` in milliseconds. */
export function parseDuration(text: string, source: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|)$/.exec(text.trim())
  const ms = match ? Number(match[1]) * units[match[2]!]! : Number.NaN
  if (ms > 0 && ms <= 86_400_000) return ms
  throw usageError(`${source} is not a duration: ${text}`, 'seconds, or 500ms, 30s, 2m')
}

export const isTruthy = (text: string | undefined): boolean =>
  text !== undefined && !['', '0', 'false', 'no', 'off'].includes(text.toLowerCase())

export function parseStoreKind(text: string | undefined): StoreKind | undefined {
  if (!text) return undefined
  if (text === 'none') return 'memory'
  if (text === 'keychain' || text === 'file' || text === 'memory') return text
  throw usageError(`"${text}" is not a credential store`, 'keychain, file or none')
}
