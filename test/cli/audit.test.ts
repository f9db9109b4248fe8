import { readdirSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { signingKeyOf } from '../../src/audit/checkpoints/checkpoint.ts'
import { bundle, sealed } from '../audit/bundles.ts'
import { chainLines as chain } from './chain-lines.ts'
import { afterRateLimit, FakeService, organization, problem, uuid } from './fake-service.ts'
import { failureOf, Home, noTerminal } from './run.ts'

const home = new Home()
const service = new FakeService()
const org = uuid(10)
const sound = chain(org, 5)
const altered = sound.map((line, i) => (i === 3 ? line.replace('Main', 'Mein') : line))

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

beforeEach(() => {
  const heads = [
    { orgId: null, name: 'System', seq: 2, checksum: 'x' },
    { orgId: org, name: 'Blue Bakery', seq: 5, checksum: 'x' },
  ]
  service.answers['GET /orgs/'] = { body: { data: [organization(10, 'blue-bakery', 'Blue Bakery')] } }
  service.answers['GET /audit-logs/chains'] = { body: { data: heads } }
  serve(sound)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

const serve = (lines: string[]) => {
  service.answers['GET /audit-logs/chain'] = ({ path }) => ({
    body: (path.includes(org) ? lines : chain(null, 2)).join(''),
  })
}
const verify = (...args: string[]) => home.run(['audit', 'verify', '--json', ...args])
const verifyLines = (lines: string[]) => verify(home.write('chain.ndjson', lines.join('')))

describe('svc audit verify FILE', () => {
  it('exits with 0 for a sound file, without any service', async () => {
    const file = home.write('chain.ndjson', sound.join(''))
    const { code, stdout } = await home.run(['audit', 'verify', file, '--url', 'http://127.0.0.1:1'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/^Sound: .*chain\.ndjson, 5 entries, up to [0-9a-f]{12}\n$/)
  })

  it('also reads standard input', async () => {
    const { code } = await home.run(['audit', 'verify', '-'], { input: sound.join('') })
    expect(code).toBe(0)
  })

  it('exits with 1 for an altered file, and names the entry', async () => {
    const result = await verifyLines(altered)
    expect(result.code).toBe(1)
    expect(JSON.parse(result.stdout)).toMatchObject({
      verdict: 'tampered',
      chains: [{ fault: { kind: 'altered', seq: 3, entry: { id: uuid(502), action: 'site.change.3' } } }],
    })
    const human = await home.run(['audit', 'verify', home.write('chain.ndjson', altered.join(''))])
    expect(human.stdout).toContain('TAMPERED')
    expect(human.stdout).toContain(`id ${uuid(502)}, action site.change.3`)
  })

  it.each<[string, string[], number, string]>([
    ['reports a removed entry', sound.toSpliced(2, 1), 1, 'tampered'],
    ['reports two swapped entries', [0, 1, 3, 2, 4, 5, 6].map((i) => sound[i]!), 1, 'tampered'],
    ['reports a removed last entry', sound.toSpliced(5, 1), 1, 'tampered'],
    ['cannot verify a truncated file', sound.slice(0, 4), 9, 'unverifiable'],
    ['cannot verify an empty file', [], 9, 'unverifiable'],
    ['cannot verify another file', ['{"a":1}\n'], 9, 'unverifiable'],
  ])('%s', async (_, lines, code, verdict) => {
    const result = await verifyLines(lines)
    expect(result.code).toBe(code)
    expect(JSON.parse(result.stdout)).toMatchObject({ verdict })
  })

  it('exits with 9 for a file that cannot be read', async () => {
    const result = await verify('/no/such/file')
    expect(result.code).toBe(9)
    expect(JSON.parse(result.stdout)).toMatchObject({ verdict: 'unverifiable' })
  })
})

describe('svc audit verify', () => {
  it('verifies every readable chain of the service', async () => {
    const { code, stdout } = await verify()
    expect(code).toBe(0)
    expect(JSON.parse(stdout)).toMatchObject({
      verdict: 'sound',
      entries: 7,
      chains: [
        { name: 'System', orgId: null, entries: 2 },
        { name: 'Blue Bakery', orgId: org, entries: 5 },
      ],
    })
  })

  it('verifies one chain with --org', async () => {
    const { chains } = JSON.parse((await verify('--org', 'blue-bakery')).stdout)
    expect(chains).toMatchObject([{ name: 'Blue Bakery', entries: 5 }])
  })

  it('exits with 1 for one tampered chain, whatever the others are', async () => {
    serve(altered)
    expect((await verify()).code).toBe(1)
  })

  it('is unverifiable when the service sends another chain', async () => {
    serve(chain(uuid(99), 5))
    const { code, stdout } = await verify('--org', org)
    expect(code).toBe(9)
    expect(stdout).toContain('another chain')
  })

  it('gives no verdict on an unreadable chain, and its verdict on each other', async () => {
    const other = uuid(11)
    const heads = [
      {
        orgId: other,
        name: 'Gone Garage',
        slug: 'garage',
        deletedAt: '2026-02-01T00:00:00.000Z',
        seq: 3,
        checksum: 'x',
      },
      { orgId: org, name: 'Blue Bakery', slug: 'blue-bakery', deletedAt: null, seq: 5, checksum: 'x' },
    ]
    service.answers['GET /audit-logs/chains'] = { body: { data: heads } }
    const answer = (lines: string[]) => {
      service.answers['GET /audit-logs/chain'] = ({ path }) =>
        path.includes(org) ? { body: lines.join('') } : problem(404, 'not_found', 'Organization not found')
    }
    answer(sound)
    const result = await home.run(['audit', 'verify'])
    expect(result.code).toBe(9)
    expect(result.stdout).toContain(
      'Cannot tell: Gone Garage (deleted 2026-02-01T00:00:00.000Z): it cannot be read',
    )
    expect(result.stdout).toContain('Sound: Blue Bakery, 5 entries')
    const { code, stdout } = await verify()
    expect(code).toBe(9)
    expect(JSON.parse(stdout)).toMatchObject({
      verdict: 'unverifiable',
      chains: [
        { name: 'Gone Garage', deletedAt: '2026-02-01T00:00:00.000Z', verdict: 'unverifiable', orgId: other },
        { name: 'Blue Bakery', verdict: 'sound', entries: 5 },
      ],
    })
    answer(altered)
    expect((await verify()).code).toBe(1)
  })

  it('waits when reading many chains exceeds the rate limit', async () => {
    service.answers['GET /audit-logs/chain'] = afterRateLimit(() => ({ body: sound.join('') }))
    const { code, stdout, stderr } = await home.run(['audit', 'verify', '--org', org])
    expect(stderr).toContain('Rate limited: continuing in 0 s')
    expect([code, stdout]).toEqual([0, expect.stringContaining('5 entries')])
  })

  it('finds a deleted organization by ID, slug and name', async () => {
    const gone = (n: number, slug: string, name: string) => ({
      orgId: uuid(n),
      name,
      slug,
      deletedAt: '2026-02-01T00:00:00.000Z',
      seq: 5,
      checksum: 'x',
    })
    service.answers['GET /audit-logs/chains'] = {
      body: {
        data: [
          gone(20, 'garage', 'Old Garage'),
          gone(21, 'garage-2', 'Twice'),
          gone(22, 'garage-3', 'Twice'),
          gone(23, 'blue-bakery', 'Blue Bakery'),
        ],
      },
    }
    service.answers['GET /audit-logs/chain'] = ({ path }) => ({
      body: chain(new URL(path, 'http://x').searchParams.get('orgId'), 5).join(''),
    })
    const found = async (word: string) => {
      const { code, stdout } = await verify('--org', word)
      expect(code).toBe(0)
      return JSON.parse(stdout).chains[0]
    }
    for (const word of [uuid(20), 'garage', 'Old Garage', 'old garage']) {
      expect(await found(word)).toMatchObject({ orgId: uuid(20), name: 'Old Garage' })
    }
    // A reused slug refers to the existing organization.
    expect(await found('blue-bakery')).toMatchObject({ orgId: org })
    const twice = await verify('--org', 'Twice')
    expect(failureOf(twice)).toMatchObject({ code: 'ambiguous' })
    for (const id of [uuid(21), uuid(22)]) expect(twice.stderr).toContain(id)
    const both = await verify('--org', 'Blue Bakery')
    expect(failureOf(both)).toMatchObject({ code: 'ambiguous' })
    for (const id of [org, uuid(23)]) expect(both.stderr).toContain(id)
    const none = await verify('--org', 'Nobody')
    expect(failureOf(none)).toMatchObject({ code: 'not_found' })
    // The list commands find it too.
    service.answers['GET /audit-logs/logs'] = {
      body: { data: [], pagination: { page: 1, limit: 50, total: 0 } },
    }
    await home.run(['audit', 'list', '--org', 'Old Garage', '--json'])
    expect(service.calls('GET /audit-logs/logs').at(-1)!.path).toContain(uuid(20))
  })

  it('reports a chain that breaks off among several as unreadable, and the others as they are', async () => {
    service.answers['GET /audit-logs/chain'] = ({ path }) =>
      path.includes(org)
        ? { headers: { 'content-length': '100000' }, body: sound.slice(0, 2).join('') }
        : { body: chain(null, 2).join('') }
    const result = await verify('--timeout', '500ms')
    const { verdict, chains } = JSON.parse(result.stdout)
    expect([result.code, verdict]).toEqual([9, 'unverifiable'])
    expect(chains).toMatchObject([
      { name: 'System', verdict: 'sound', entries: 2 },
      { name: 'Blue Bakery', verdict: 'unverifiable', fault: { kind: 'unreadable' } },
    ])
    // A changed entry outweighs it, whichever comes first.
    service.answers['GET /audit-logs/chain'] = ({ path }) =>
      path.includes(org)
        ? { body: altered.join('') }
        : { headers: { 'content-length': '100000' }, body: chain(null, 2).slice(0, 1).join('') }
    expect((await verify('--timeout', '500ms')).code).toBe(1)
  })

  it.skipIf(noTerminal)('shows how far it is: rows a second, and what is left of the chain', async () => {
    const total = 45
    service.answers['GET /audit-logs/chains'] = {
      body: { data: [{ orgId: null, name: 'System', seq: total, checksum: 'x' }] },
    }
    service.answers['GET /audit-logs/chain'] = {
      stream: (async function* () {
        for (const line of chain(null, total)) {
          yield line
          await sleep(100)
        }
      })(),
    }
    const { code, stdout } = await home.terminal(['audit', 'verify'])
    const [last, ...drawn] = stdout.split('\r\u001b[2K').reverse()
    expect([code, last]).toEqual([0, expect.stringContaining(`System, ${total} entries`)])
    expect(drawn).toContainEqual(expect.stringMatching(/^\S Verifying \d+ of 45 rows$/))
    const bars = drawn.filter((line) => line.startsWith('Verifying ['))
    expect(bars.length).toBeGreaterThan(1)
    for (const bar of bars) {
      expect(bar).toMatch(/^Verifying \[#+-*\] \d+ of 45 rows, \d+ rows\/s, \d+ s left$/)
      expect(bar.length).toBeLessThanOrEqual(79)
    }
    const done = bars.map((bar) => Number(/\] (\d+) of/.exec(bar)?.[1]))
    expect(done.toReversed()).toEqual([...done].sort((a, b) => a - b))
  })

  it('exits with 8 when the service cannot be reached', async () => {
    const result = await verify('--url', 'http://127.0.0.1:1', '--token', `@${home.write('token', 't')}`)
    expect(result.code).toBe(8)
    expect(failureOf(result).code).toBe('unreachable')
  })

  it('exits with 8 instead of a verdict when the connection breaks', async () => {
    service.answers['GET /audit-logs/chain'] = {
      headers: { 'content-length': '100000' },
      body: sound.slice(0, 2).join(''),
    }
    const result = await verify('--org', org, '--timeout', '500ms')
    expect([8, 124]).toContain(result.code)
    expect(result.stdout).toBe('')
  })
})

describe('trust', () => {
  const seed = Buffer.alloc(32, 1)
  const publicKey = signingKeyOf(seed, org).publicKey.toString('base64')
  const lines = (count: number, by: Buffer = seed) =>
    bundle(
      sealed(count, () => ({}), org),
      { org, by },
    )
  const json = async (...args: string[]) => {
    const { code, stdout } = await home.run(['audit', 'verify', '--json', ...args])
    return { code, ...JSON.parse(stdout).chains[0] }
  }

  it('in a key is checked by its signature; without a key the output says it is unchecked', async () => {
    const file = home.write('signed.ndjson', lines(5).join(''))
    const key = home.write('keys', `# the service\n${publicKey}\n`)
    const { stdout } = await home.run(['audit', 'verify', file, '--key', key])
    expect(stdout).toMatch(/^Sound: .*, 5 entries, up to [0-9a-f]{12}, signed 2026-03-02T00:00:00.000Z\n$/)
    const unchecked = await home.run(['audit', 'verify', file])
    expect(unchecked.stdout).toContain(', signature not checked: give --key\n')
    const other = home.write('other.ndjson', lines(5, Buffer.alloc(32, 2)).join(''))
    expect(await json(other, '--key', key)).toMatchObject({ code: 9, fault: { kind: 'wrong_key' } })
    expect(await json(home.write('sound.ndjson', sound.join('')), '--key', key)).toMatchObject({
      code: 9,
      fault: { kind: 'unsigned' },
    })
  })

  it('in an empty key file exits with 9', async () => {
    const file = home.write('signed.ndjson', lines(5).join(''))
    for (const text of ['', '# none\n', 'hello\n']) {
      const result = await home.run(['audit', 'verify', file, '--key', home.write('none', text), '--json'])
      expect(result.code).toBe(9)
      expect(failureOf(result).code).toBe('unknown_key')
    }
  })

  it('in a pin begins with the first verification, and the pin moves with sound verdicts only', async () => {
    const file = (count: number, by?: Buffer) => home.write('pinned.ndjson', lines(count, by).join(''))
    const key = home.write('keys', `${publicKey}\n`)
    const first = await home.run(['audit', 'verify', file(5), '--key', key, '--pin', 'pins.json'])
    expect(first.stdout).toContain('pinned without comparison: there was no pin before')
    expect(home.mode('pins.json')).toBe('600')
    expect(await json(file(8), '--pin', 'pins.json')).toMatchObject({ code: 0, pin: 'kept' })
    const { seq, key: pinned } = home.json<{ chains: Record<string, { seq: number; key: string }> }>(
      'pins.json',
    ).chains[org]!
    expect({ seq, pinned }).toEqual({ seq: 8, pinned: publicKey })
    const before = home.read('pins.json')
    expect(await json(file(7), '--pin', 'pins.json')).toMatchObject({ code: 1, fault: { kind: 'truncated' } })
    expect(await json(file(9, Buffer.alloc(32, 2)), '--pin', 'pins.json')).toMatchObject({
      code: 9,
      fault: { kind: 'wrong_key' },
    })
    expect(home.read('pins.json')).toBe(before)
    serve(lines(9))
    expect(await json('--org', org, '--pin', 'pins.json')).toMatchObject({ code: 0, pin: 'kept', entries: 9 })
    home.write('pins.json', before.slice(9))
    expect((await home.run(['audit', 'verify', file(9), '--pin', 'pins.json'])).code).toBe(9)
  })

  it('is checked the same in gzipped files, and in threads', async () => {
    const zipped = home.write('chain.ndjson.gz', '')
    writeFileSync(zipped, gzipSync(lines(5).join('')))
    expect(await json(zipped)).toMatchObject({ code: 0, entries: 5 })
    writeFileSync(zipped, gzipSync(lines(5).join('')).subarray(0, -9))
    expect(await json(zipped)).toMatchObject({ code: 9, fault: { kind: 'unreadable' } })
    const file = home.write('signed.ndjson', lines(5).join(''))
    const root = /\n([A-Za-z0-9+/]{43}=)\n/.exec(JSON.parse(lines(5).at(-1)!).checkpoint)![1]
    expect(await json(file, '--threads', '2', '--tree')).toMatchObject({ code: 0, entries: 5, root })
  })
})

describe('svc audit export', () => {
  it('writes what verify reads, to a new private file', async () => {
    const { code, stdout, stderr } = await home.run([
      'audit',
      'export',
      '--org',
      'blue-bakery',
      '--out-file',
      'export.ndjson',
    ])
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
    expect(stderr).toContain('5 entries written to export.ndjson')
    expect(home.read('export.ndjson')).toBe(sound.join(''))
    expect(home.mode('export.ndjson')).toBe('600')
    expect((await home.run(['audit', 'verify', 'export.ndjson'])).code).toBe(0)
    expect((await home.run(['audit', 'export', '--out-file', 'export.ndjson'])).code).toBe(2)
  })

  it('writes to standard output byte for byte', async () => {
    const { stdout } = await home.run(['audit', 'export', '--org', org])
    expect(stdout).toBe(sound.join(''))
  })

  it('also accepts --bundle, which excludes --format', async () => {
    expect((await home.run(['audit', 'export', '--org', org, '--bundle'])).stdout).toBe(sound.join(''))
    expect((await home.run(['audit', 'export', '--org', org, '--bundle', '--format', 'csv'])).code).toBe(2)
  })

  it('leaves no file when the connection breaks', async () => {
    service.answers['GET /audit-logs/chain'] = {
      headers: { 'content-length': '100000' },
      body: sound.slice(0, 2).join(''),
    }
    const args = ['audit', 'export', '--org', org, '--out-file', 'half.ndjson', '--timeout', '500ms']
    expect([8, 124]).toContain((await home.run(args)).code)
    expect(readdirSync(home.path).filter((name) => name.startsWith('half'))).toEqual([])
  })

  it('leaves no file when it fails', async () => {
    service.answers['GET /audit-logs/chain'] = problem(403, 'forbidden', 'Permission denied')
    const { code } = await home.run(['audit', 'export', '--org', org, '--out-file', 'refused.ndjson'])
    expect(code).toBe(5)
    expect(() => home.read('refused.ndjson')).toThrow('ENOENT')
  })
})

describe('svc audit export --format', () => {
  const csvText = 'action\r\nuser.login\r\n'

  it('requests what was filtered, to a new private file, and prints how to continue', async () => {
    service.answers['GET /audit-logs/export'] = {
      headers: { 'content-type': 'text/csv', 'x-total-count': '10000', 'x-next-cursor': 'abc' },
      body: csvText,
    }
    const args = ['audit', 'export', '--org', 'blue-bakery', '--format', 'csv', '--action', 'user.login']
    const more = ['--columns', 'action', '--no-include-details', '--out-file', 'logins.csv']
    const { code, stdout, stderr } = await home.run([...args, ...more])
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' })
    expect(stderr).toContain('10 000 entries written to logins.csv')
    expect(stderr).toContain('--cursor abc')
    expect(home.read('logins.csv')).toBe(csvText)
    expect(home.mode('logins.csv')).toBe('600')
    const [sent] = service.calls('GET /audit-logs/export')
    expect(Object.fromEntries(new URL(sent!.path, 'http://x').searchParams)).toEqual({
      orgId: org,
      format: 'csv',
      action: 'user.login',
      columns: 'action',
      includeDetails: 'false',
    })
    expect((await home.run([...args, ...more])).code).toBe(2)
    expect(service.calls('GET /audit-logs/export')).toHaveLength(1)
  })

  it('is required for filters, as a chain is always exported whole', async () => {
    expect((await home.run(['audit', 'export', '--org', org, '--action', 'user.login'])).code).toBe(2)
  })
})

describe('svc audit report', () => {
  it('requests a report by name, for a time range', async () => {
    service.answers['GET /audit-logs/reports/security-events'] = { body: { totalEvents: 2, byAction: [] } }
    const from = '2026-01-01T00:00:00Z'
    const args = [
      'audit',
      'report',
      'security',
      '--org',
      'blue-bakery',
      '--since',
      from,
      '--jq',
      '.totalEvents',
    ]
    expect(await home.run(args)).toMatchObject({ code: 0, stdout: '2\n' })
    const [sent] = service.calls('GET /audit-logs/reports/security-events')
    expect(Object.fromEntries(new URL(sent!.path, 'http://x').searchParams)).toEqual({ orgId: org, from })
    const unknown = await home.run(['audit', 'report', 'securty'])
    expect(unknown.code).toBe(2)
    expect(unknown.stderr).toContain('security')
  })
})

it('svc audit search searches audit entries by words', async () => {
  service.answers['GET /audit-logs/search'] = {
    body: { data: [], query: 'Front desk', pagination: { page: 1, limit: 50, total: 0, totalPages: 0 } },
  }
  expect((await home.run(['audit', 'search', 'Front desk', '--since', '2026-01-01T00:00:00Z'])).code).toBe(0)
  const [sent] = service.calls('GET /audit-logs/search')
  expect(Object.fromEntries(new URL(sent!.path, 'http://x').searchParams)).toEqual({
    q: 'Front desk',
    from: '2026-01-01T00:00:00Z',
  })
})
