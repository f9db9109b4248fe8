import fc from 'fast-check'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { fieldsOf } from './fields.ts'
import { bytesOf } from './wire.ts'

/** A request as bytes, and as text for failures. */
export type Strange = { bytes: Buffer; what: string }

const half = '\ud800'
const deep = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`

/** Problematic and random text. */
const strangeText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: 'grapheme' }),
  fc.constantFrom(
    '',
    ' ',
    '\0',
    'a\0b',
    half,
    `a${half}`,
    '\udc00\ud800',
    '\u202e',
    '\ufeff',
    'ﷺ',
    '__proto__',
  ),
  fc.constantFrom("' or 1=1 --", '%', '_', '{{7*7}}', '../../etc/passwd', '\r\nx-a: b', '<script>'),
  fc.constantFrom('1e400', '-0', 'NaN', 'null', 'true', '9'.repeat(400), '0001-01-01T00:00:00Z'),
  fc.integer({ min: 1, max: 20_000 }).map((length) => 'ä'.repeat(length)),
)

const strangeValue: fc.Arbitrary<unknown> = fc.oneof(
  strangeText,
  fc.jsonValue({ maxDepth: 6 }),
  fc.constantFrom(
    null,
    true,
    0,
    -1,
    -0,
    0.1,
    2 ** 31,
    2 ** 53,
    1e308,
    Number.MIN_VALUE,
    [],
    {},
    [null],
    [[]],
  ),
  fc.dictionary(fc.constantFrom('__proto__', 'constructor', 'toString', 'length', '0', ''), fc.jsonValue()),
  fc.array(strangeText, { maxLength: 200 }),
)

/** Bodies that are invalid or ambiguous JSON. */
const strangeBytes: fc.Arbitrary<Buffer> = fc.oneof(
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  fc
    .constantFrom(
      '',
      ' ',
      '{',
      '{"a":1',
      '{"a":1,"a":2}',
      '{"a":1e400}',
      '[1e999]',
      '"\\ud800"',
      '"\0"',
      'null',
    )
    .map((text) => Buffer.from(text)),
  fc
    .constantFrom('{"__proto__":{"a":1}}', '{"constructor":{"prototype":{"a":1}}}')
    .map((text) => Buffer.from(text)),
  fc
    .constantFrom('\ufeff{}', '{}{}', '{} x', "{'a':1}", 'a=1&b=2', '<a/>', '01')
    .map((text) => Buffer.from(text)),
  fc.constantFrom(100, 5000, 100_000).map((levels) => Buffer.from(deep(levels))),
  fc.constantFrom(100, 5000).map((levels) => Buffer.from(`{"a":${deep(levels)}}`)),
  fc.constant(Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])),
)

const oftenFirst = <A, B>(first: fc.Arbitrary<A>, second: fc.Arbitrary<B>) =>
  fc.oneof({ weight: 2, arbitrary: first as fc.Arbitrary<A | B> }, { weight: 1, arbitrary: second })

/** Known fields with values of any kind, sometimes valid, sometimes with more fields or duplicates. */
function bodyOf({ body, example = {} }: Endpoint): fc.Arbitrary<Buffer> {
  const names = [...new Set(fieldsOf(body).map(({ path }) => path[0]!))]
  const own = (name: string) => fc.constant(example[name] ?? '1')
  const value = (name: string) =>
    fc.oneof({ weight: 3, arbitrary: strangeValue }, { weight: 2, arbitrary: own(name) })
  const known = fc.record(Object.fromEntries(names.map((name) => [name, value(name)])), { requiredKeys: [] })
  const more = fc.oneof(
    { weight: 3, arbitrary: fc.constant({}) },
    { weight: 1, arbitrary: fc.dictionary(strangeText, fc.jsonValue(), { maxKeys: 3 }) },
  )
  const fields = fc
    .tuple(known, more)
    .map(([some, others]) => Object.entries({ ...some, ...others }).map(([key, one]) => [key, one] as const))
  const written = fc.tuple(fields, fc.boolean(), strangeValue).map(([pairs, twice, again]) => {
    const all = twice && pairs[0] ? [...pairs, [pairs[0][0], again] as const] : pairs
    return Buffer.from(`{${all.map(([key, one]) => `${JSON.stringify(key)}:${JSON.stringify(one)}`).join()}}`)
  })
  const nearly = fc
    .tuple(fc.constantFrom(...names, 'more'), strangeValue)
    .map(([name, one]) => Buffer.from(JSON.stringify({ ...example, [name]: one })))
  const any = strangeValue.map((one) => Buffer.from(JSON.stringify(one)))
  return fc.oneof(
    { weight: 4, arbitrary: written },
    { weight: 4, arbitrary: nearly },
    { weight: 1, arbitrary: any },
    { weight: 2, arbitrary: strangeBytes },
  )
}

/** Text in a URL: encoded, but not always correctly. */
const strangePart: fc.Arbitrary<string> = fc.oneof(
  strangeText.map((text) => encodeURIComponent(text.toWellFormed()).slice(0, 900)),
  fc.constantFrom(
    '%00',
    '%ED%A0%80',
    '%',
    '%zz',
    '%ff',
    '%c0%ae',
    '..',
    '%2e%2e%2f',
    ';',
    '[]',
    'a[b]',
    '\u00ff',
  ),
  fc.uuid({ version: 7 }),
)

function pathTo(entry: Endpoint, ids: readonly string[]): fc.Arbitrary<string> {
  const count = entry.path.split('/:').length - 1
  const part = oftenFirst(fc.constantFrom(...ids), strangePart)
  const names = [
    ...fieldsOf(entry.query).map(({ path }) => path[0]!),
    'page',
    'limit',
    'orgId',
    '__proto__',
    'a[]',
  ]
  const asked = fc.array(fc.tuple(oftenFirst(fc.constantFrom(...names), strangePart), part), { maxLength: 3 })
  return fc
    .tuple(fc.array(part, { minLength: count, maxLength: count }), oftenFirst(fc.constant([]), asked))
    .map(([values, query]) => {
      const left = [...values]
      const path = entry.path.replace(/:\w+/g, () => left.shift()!)
      const search = query.map(([name, value]) => `${name}=${value}`).join('&')
      return `/api/v1${path}${search && `?${search}`}`
    })
}

/** One header line: any bytes except those that would end it. */
const strangeLine: fc.Arbitrary<string> = fc.oneof(
  fc.uint8Array({ maxLength: 100 }).map((bytes) =>
    Buffer.from(bytes)
      .toString('latin1')
      .replace(/[\r\n]/g, ''),
  ),
  fc.string({ unit: 'grapheme-ascii' }),
  fc.constantFrom('', '\0', 'a\0b', '\u00ff\u00fe', ',', ';', '=', '__proto__', '*', 'null', 'a, b', '\t'),
  fc.constantFrom(300, 3000, 20_000).map((length) => 'x'.repeat(length)),
)

const credentials = fc.oneof(
  strangeLine,
  fc.tuple(fc.constantFrom('Bearer', 'bearer', 'Basic', ''), strangeLine).map((words) => words.join(' ')),
  fc.constantFrom(
    'Bearer ..',
    'Bearer eyJhbGciOiJub25lIn0.e30.',
    `Bearer svc_${'a'.repeat(43)}`,
    `svc_${'a'.repeat(43)}`,
  ),
)
const cookies = fc.oneof(
  strangeLine,
  strangeLine.map((value) => `service_refresh_token=${value}; service_csrf_token=${value}`),
  fc.constantFrom('service_refresh_token=%zz', 'service_refresh_token=a; service_refresh_token=b', '=;=;'),
)
const types = fc.oneof(
  strangeLine,
  fc.constantFrom(
    'application/json; charset=utf-16',
    'application/json;',
    'APPLICATION/JSON',
    'text/plain',
    '/',
  ),
  fc.constantFrom(
    'multipart/form-data; boundary=',
    'application/x-www-form-urlencoded',
    'application/json, text/html',
  ),
)
const rarely = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { freq: 4, nil: undefined })
const strangeHeaders = fc
  .record({
    authorization: rarely(credentials),
    'x-api-key': rarely(credentials),
    'idempotency-key': rarely(strangeLine),
    cookie: rarely(cookies),
    'x-service-csrf': rarely(strangeLine),
    'x-service-client': fc.constantFrom('cli', undefined),
    origin: rarely(fc.constantFrom('null', 'http://', 'https://evil.example', '\u00ff')),
    'content-type': rarely(types),
    'x-request-id': rarely(strangeLine),
  })
  .map((headers) => Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)))

/** A random request to an entry, with the given credentials. */
export function requestTo(
  entry: Endpoint,
  ids: readonly string[],
  who: () => Record<string, string>,
): fc.Arbitrary<Strange> {
  // These reach the handlers.
  const plain = fc.constant<Record<string, string>>({ 'x-service-client': 'cli' })
  const headers = fc.oneof(plain, strangeHeaders as fc.Arbitrary<Record<string, string>>)
  const body = entry.method === 'GET' ? fc.oneof(fc.constant(Buffer.alloc(0)), strangeBytes) : bodyOf(entry)
  return fc.tuple(pathTo(entry, ids), headers, body).map(([path, some, content]) => {
    const head = bytesOf({ method: entry.method, path, headers: { ...who(), ...some } }, content.length)
    const bytes = Buffer.concat([Buffer.from(head, 'latin1'), content])
    const what = JSON.stringify(bytes.subarray(0, 2000).toString('latin1'))
    return { bytes, what, [fc.toStringMethod]: () => what }
  })
}
