import { z } from 'zod'
import { type Contract, type Endpoint, entriesOf, isMutation } from '../../src/core/endpoint.ts'
import { permissions } from '../../src/core/permissions.ts'
import { unwrap } from '../../src/core/schema.ts'
import { callOf, unknownRecords } from './calls.ts'
import { type Field, fieldsOf, inputsOf, last } from './fields.ts'

/** Fields that are named like a secret and are none. */
const webhookEntries = ['list', 'create', 'show', 'update', 'setRetryPolicy', 'rotateSecret']

const harmless = new Set([
  // Public keys.
  'agents.enroll body.publicKey',
  'agents.enroll reply.serviceKey',
  'agentKeys.register body.publicKey',
  'agentKeys.register reply.serviceKey',
  'agentKeys.recover body.serviceKey',
  // Counts of keys.
  ...['orgs', 'partners'].flatMap((group) =>
    ['apiKeys', 'enrollmentKeys'].map((kind) => `${group}.deletion reply.${kind}`),
  ),
  // The name of a header.
  ...webhookEntries.flatMap((name) =>
    ['body.headers', 'reply.headers', 'reply.data.0.headers'].map((at) => `webhooks.${name} ${at}.0.key`),
  ),
  // Everyone may know a public key.
  'auditCheckpoints.key reply.current.publicKey',
  'auditCheckpoints.key reply.former.0.publicKey',
  'filters.fields reply.data.0.key',
  'agents.heartbeat reply.manifestTrustKeys',
  'agents.heartbeat reply.manifestTrustKeys.0',
  'permissions.canI reply.code',
  'permissions.explain reply.code',
  'ssoTrials.show reply.steps.0.code',
  // The exit code of a program.
  'deviceCommands.show reply.result.exitCode',
  'agentCommands.result body.exitCode',
])

/** Longer than any intended value, even a script. */
const endless = 'x'.repeat(1_000_001)

/** Names that other systems give their own records. */
const elsewhere = new Set([
  'alerts.create body.ruleId',
  'eventLogs.submit body.events.0.eventId',
  // Valid for ten minutes.
  'ssoTrials.show params.testId',
  ...['create', 'update'].flatMap((name) => [
    `ssoProviders.${name} body.clientId`,
    `ssoProviders.${name} body.entityId`,
  ]),
  ...['liveLogs', 'deviceLogs'].flatMap((group) => [
    `${group}.events query.eventId`,
    `${group}.record params.recordId`,
  ]),
])

/** Everything wrong with a contract, each as one line. */
export function faultsOf(contract: Contract): string[] {
  const taken = new Map<string, string>()
  const ids = new Set<string>()
  return entriesOf(contract).flatMap(({ name, entry }) => {
    const faults = [...ofInputs(name, entry), ...ofReply(name, entry), ...ofMeaning(entry)]
    const route = `${entry.method} ${entry.path.replace(/:\w+/g, ':')}`
    const first = taken.get(route)
    if (first !== undefined) faults.push(`${route} is taken by ${first}`)
    taken.set(route, first ?? name)
    const id = name.replaceAll('.', '_')
    if (ids.has(id)) faults.push(`operation id ${id} is taken`)
    ids.add(id)
    return faults.map((fault) => `${name}: ${fault}`)
  })
}

/** The number of messages that a sign-in in its second step may send. */
const limitedOtherwise = new Set(['/auth/mfa/sms/send'])

function ofMeaning(entry: Endpoint): string[] {
  const faults: string[] = []
  const { audit, access, path, params } = entry
  const said = audit && ('unaudited' in audit ? audit.unaudited.length > 0 : audit.action.includes('.'))
  if (isMutation(entry) && !said) faults.push('says neither what it audits nor why not')
  if (entry.method === 'POST' && entry.idempotencyKey === undefined) {
    faults.push('says nothing on Idempotency-Key')
  }
  if (entry.idempotencyKey === 'honored' && (entry.session || !isMutation(entry))) {
    faults.push('would give a session out again')
  }
  if (
    entry.idempotencyKey === 'honored' &&
    access.who === 'public' &&
    !entry.limit &&
    !limitedOtherwise.has(path)
  ) {
    faults.push('keeps replies for strangers without a limit')
  }
  if (entry.method === 'POST' && entry.idempotencyKey !== 'honored' && entry.status === 201)
    faults.push('creates, and knows no Idempotency-Key')
  const quiet = audit && 'action' in audit ? audit.quietFor : undefined
  if (!isMutation(entry) && audit && quiet === undefined) faults.push('audits a read, but not how often')
  if (isMutation(entry) && quiet !== undefined) faults.push('audits a change only now and then')
  if (access.who === 'user' && access.permission !== undefined) {
    const known = access.permission === '*:*' || permissions.includes(access.permission)
    if (!known) faults.push(`needs ${access.permission}, which is not in the catalog`)
  }
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, one]) => one).sort()
  const declared = Object.keys(params?.shape ?? {}).sort()
  if (inPath.join() !== declared.join()) faults.push('the path and params differ')
  if (entry.body && !entry.example && !entry.redirects) faults.push('body without an example')
  if (entry.body && entry.example && !entry.body.safeParse(callOf(entry, unknownRecords()).body).success) {
    faults.push('its example is not valid')
  }
  return faults
}

function ofInputs(name: string, entry: Endpoint): string[] {
  const { who } = entry.access
  // Telemetry is never refused for an extra field.
  const strict = (['params', 'query', 'body'] as const).filter(
    (part) => !(who === 'agent' && part === 'body'),
  )
  const open = strict.flatMap((part) => {
    const schema = entry[part] && unwrap(entry[part])
    const loose = schema instanceof z.ZodObject && schema.safeParse({ aFieldOfNobody: 1 }).error === undefined
    const silent = schema instanceof z.ZodObject && !(schema.def.catchall instanceof z.ZodNever)
    // Identity providers may add unknown parameters.
    return (loose || silent) && !entry.redirects ? [`${part} takes unknown fields`] : []
  })
  return [
    ...open,
    ...inputsOf(entry).flatMap((field) => ofInput(name, field, [field.part, ...field.path].join('.'))),
  ]
}

function ofInput(name: string, field: Field, at: string): string[] {
  const inner = unwrap(field.schema)
  const faults: string[] = []
  const isGuid = inner instanceof z.ZodString && ['guid', 'uuid'].includes(inner.format ?? '')
  const named = /^(id|.*Ids?)$/.test(last(field))
  const ours = !elsewhere.has(`${name} ${at}`)
  if (field.leaf && !field.resource && (isGuid || named) && ours) faults.push(`${at} is an id of no kind`)
  if (field.leaf && looksSecret(field) && !field.secret && !harmless.has(`${name} ${at}`))
    faults.push(`${at} looks like a secret and is not marked`)
  const isKept = keptAsJson.has(`${name} ${at}`) || last(field) === 'cursor'
  if (field.leaf && !isKept && letsOddThrough(field.schema)) faults.push(`${at} takes what cannot be stored`)
  // A truncated text has a maximum length.
  const unending = inner instanceof z.ZodString && field.schema.safeParse(endless).data === endless
  if (unending && !isLenient(field.schema)) faults.push(`${at} may be of any length`)
  return faults
}

/** Whether a value has characters that a database cannot store or return; a parsed value has none. */
export const holdsOdd = (value: unknown): boolean =>
  /\\u0000|\\ud[89a-f][0-9a-f]{2}/.test(JSON.stringify(value) ?? '')

const odd: unknown[] = ['a\u0000b', 'a\ud800', '\udc00a']

function letsOddThrough(schema: z.ZodType): boolean {
  const values = [
    ...odd,
    ...odd.map((text) => ({ a: { b: [text] } })),
    ...odd.map((key) => ({ [key as string]: 1 })),
  ]
  return values.some((value) => holdsOdd(schema.safeParse(value).data))
}

/** Fields stored as JSON, which can escape every character, and fields decoded before use. */
const keptAsJson = new Set(
  ['stdout', 'stderr', 'error', 'result'].map((name) => `agentCommands.result body.${name}`),
)

/** A bad value is dropped rather than refused. */
const isLenient = (schema: z.ZodType): boolean => schema.safeParse(Symbol.iterator).success

function ofReply(name: string, entry: Endpoint): string[] {
  return fieldsOf(entry.reply).flatMap((field) => {
    const at = ['reply', ...field.path].join('.')
    const faults: string[] = []
    if (/hash(es)?$/i.test(last(field)) || columnsToKeep.has(last(field))) {
      faults.push(`${at} is not for anyone to see`)
    }
    const listed = harmless.has(`${name} ${at}`)
    if (field.leaf && looksSecret(field) && !field.secret && !listed) {
      faults.push(`${at} looks like a secret and is not marked`)
    }
    return faults
  })
}

/** Stored values that are secret although their names do not end in hash. */
const columnsToKeep = new Set(['totpSecret', 'codeVerifier', 'privateKey', 'pepper'])

/** Judged by its last word: `enrollmentKey`, `newPassword`; not `keyPrefix` or `hasSecret`. */
function looksSecret(field: Field): boolean {
  if (unwrap(field.schema) instanceof z.ZodBoolean) return false
  const words = last(field).split(/(?=[A-Z])/)
  return (
    words[0] !== 'has' &&
    /^(password|passphrase|secret|key|token|code|otp|credential)s?$/i.test(words.at(-1) ?? '')
  )
}
