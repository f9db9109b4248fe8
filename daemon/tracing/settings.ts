import { readFileSync } from 'node:fs'
import { SetupError } from '../../src/core/errors.ts'
import { type Env, readBoolean, readInteger, readSecretVariable } from '../variables.ts'

/** The settings of OpenTelemetry that `svc serve` knows, by their standard names, and one of its own. */
export type TracingSettings = {
  /** Where spans are sent, with the path. */
  url: string
  /** May have tokens. */
  headers: Readonly<Record<string, string>>
  tls: { ca?: Buffer; cert?: Buffer; key?: Buffer }
  timeoutMs: number
  compression: 'none' | 'gzip'
  /** `service.name` and what OTEL_RESOURCE_ATTRIBUTES adds. */
  resource: Readonly<Record<string, string>>
  sampler: { share: number; isParentBased: boolean }
  queue: { max: number; batch: number; delayMs: number }
  /** What becomes of the `traceparent` of a caller. */
  callers: Callers
}

const callers = ['ignore', 'link', 'parent'] as const
type Callers = (typeof callers)[number]

/** undefined: no trace is made. @throws SetupError */
export function readTracingSettings(env: Env): TracingSettings | undefined {
  if (readBoolean(env, 'OTEL_SDK_DISABLED', false)) return undefined
  const url = endpointOf(env)
  const exporter = oneOf(env, 'OTEL_TRACES_EXPORTER', ['otlp', 'none'], 'otlp')
  if (url === undefined || exporter === 'none') return undefined
  const protocols = ['http/json', 'http/protobuf'] as const
  // Every receiver of OTLP over HTTP takes JSON besides protobuf.
  oneOf(env, specific(env, 'PROTOCOL'), protocols, 'http/json')
  const max = readInteger(env, 'OTEL_BSP_MAX_QUEUE_SIZE', 2048, 1, 65_536)
  const batch = readInteger(env, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', Math.min(512, max), 1, max)
  return {
    url,
    headers: headersOf(env),
    tls: tlsOf(env),
    timeoutMs: readInteger(env, specific(env, 'TIMEOUT'), 10_000, 1, 60_000),
    compression: oneOf(env, specific(env, 'COMPRESSION'), ['none', 'gzip'], 'none'),
    resource: {
      'service.name': 'svc',
      ...pairsOf('OTEL_RESOURCE_ATTRIBUTES', env.OTEL_RESOURCE_ATTRIBUTES),
      ...(env.OTEL_SERVICE_NAME && { 'service.name': env.OTEL_SERVICE_NAME }),
    },
    sampler: samplerOf(env),
    queue: { max, batch, delayMs: readInteger(env, 'OTEL_BSP_SCHEDULE_DELAY', 5000, 1, 60_000) },
    callers: oneOf(env, 'CALLER_TRACEPARENT', callers, 'link'),
  }
}

/** The variable for traces alone, when it is set, else the one for every signal. */
function specific(env: Env, name: string): string {
  const [own, all] = [`OTEL_EXPORTER_OTLP_TRACES_${name}`, `OTEL_EXPORTER_OTLP_${name}`]
  return env[own] ? own : all
}

/** The endpoint of every signal gets the path of traces; the one for traces is used as it is. */
function endpointOf(env: Env): string | undefined {
  const name = specific(env, 'ENDPOINT')
  const text = env[name]
  if (!text) return undefined
  const url = URL.parse(text)
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.hash) {
    throw new SetupError(
      `${name} must be an address such as http://localhost:4318; passwords belong into OTEL_EXPORTER_OTLP_HEADERS`,
    )
  }
  if (name === 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') return url.href
  return `${url.href.replace(/\/+$/, '')}/v1/traces`
}

function headersOf(env: Env): Record<string, string> {
  const names = ['OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS']
  return Object.assign({}, ...names.map((name) => pairsOf(name, readSecretVariable(env, name))))
}

/** `name=value,name=value`, with values in percent-encoding. A fault shows no value: it may be a secret. */
function pairsOf(name: string, text = ''): Record<string, string> {
  const pairs = text.split(',').filter((pair) => pair.trim() !== '')
  return Object.fromEntries(
    pairs.map((pair, n) => {
      const at = pair.indexOf('=')
      const key = pair.slice(0, at).trim()
      const value = decoded(pair.slice(at + 1).trim())
      if (/^[\w.!#$&'*+^`|~-]+$/.test(key) && at > 0 && value !== undefined) return [key, value]
      throw new SetupError(`${name} must be NAME=VALUE pairs, separated by commas: pair ${n + 1} is not one`)
    }),
  )
}

/** undefined for what no header can have. */
function decoded(text: string): string | undefined {
  try {
    const value = decodeURIComponent(text)
    return /^[\t\x20-\x7e\x80-\xff]*$/.test(value) ? value : undefined
  } catch {
    // A URIError: the caller says which pair it is.
    return undefined
  }
}

function tlsOf(env: Env): TracingSettings['tls'] {
  const [ca, cert, key] = (['CERTIFICATE', 'CLIENT_CERTIFICATE', 'CLIENT_KEY'] as const).map((name) => {
    const variable = specific(env, name)
    const path = env[variable]
    try {
      return path ? readFileSync(path) : undefined
    } catch (error) {
      throw new SetupError(`${variable} cannot be read: ${(error as Error).message}`)
    }
  })
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) }
}

const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

function samplerOf(env: Env): TracingSettings['sampler'] {
  const name = oneOf(env, 'OTEL_TRACES_SAMPLER', samplers, 'parentbased_always_on')
  const ratio = Number(env.OTEL_TRACES_SAMPLER_ARG || '1')
  if (!(ratio >= 0 && ratio <= 1)) throw new SetupError('OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1')
  const share = name.endsWith('always_on') ? 1 : name.endsWith('always_off') ? 0 : ratio
  return { share, isParentBased: name.startsWith('parentbased_') }
}

function oneOf<T extends string>(env: Env, name: string, values: readonly T[], otherwise: NoInfer<T>): T {
  const text = env[name] || otherwise
  const value = values.find((one) => one === text)
  if (value !== undefined) return value
  throw new SetupError(`${name} must be one of ${values.join(', ')}`)
}
