import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { noDisk, smallDisk } from '../daemon/small-disk.ts'
import { enrollmentKey, FakeService, organization, page, uuid } from './fake-service.ts'
import { binary, failureOf, Home, start } from './run.ts'

const home = new Home()
const noon = '2026-01-31T12:00:00.000Z'
const service = new FakeService({
  'GET /orgs/': { body: { data: [organization(1, 'a', 'A')] } },
  'GET /orgs/sites': { body: '{"a":1}\n' },
  'GET /enrollment-keys': page([enrollmentKey(7, uuid(1), 'b')]),
  'POST /enrollment-keys': { status: 201, body: { ...enrollmentKey(7, uuid(1), 'b'), key: 'a-secret' } },
  'GET /audit-logs/chain': { body: '{"a":1}\n'.repeat(2000) },
  'GET /audit-logs/chains': { body: { data: [] } },
  'GET /audit-logs/logs': { body: { data: [], head: 0, pagination: { nextCursor: null } } },
  'GET /overview': { body: { time: '2026-01-31T12:00:05.000Z', scope: 'system', leftOut: [] } },
  [`GET /devices/${uuid(5)}/diagnostic-logs`]: {
    body: {
      data: [{ seq: 1, createdAt: noon, timestamp: noon, level: 'info', component: 'ws', message: 'up' }],
      head: 1,
      pagination: { nextCursor: null },
    },
  },
})

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

/** Runs a line of a shell in which `svc` is the real binary. */
const shell = (line: string) =>
  start('bash', ['-c', `svc() { '${process.execPath}' '${binary}' "$@"; }; ${line}`], home.env, home.path)

describe.skipIf(process.platform !== 'linux')('a secret that nobody receives', () => {
  const create = `svc enroll create --org ${uuid(1)} --name b`
  it.each([
    [`${create} > /dev/full`, 'ENOSPC'],
    // The reader has ended before the secret is written.
    [`set -o pipefail; ${create} | exec true`, 'EPIPE'],
  ])('%s is a failure that says what to do with it', async (line, reason) => {
    const { code, stderr } = await shell(line)
    expect([code, stderr]).toEqual([1, expect.stringContaining(reason)])
    expect(stderr).toContain('Hint: it was made, and nobody has it: rotate it, or delete the record')
  })
})

describe.skipIf(process.platform !== 'linux')('output to a full disk', () => {
  it.each([
    '--version',
    '--help',
    'orgs --help',
    'help exit-codes',
    'commands',
    'completion bash',
    'config explain url',
    'orgs',
    'orgs -q',
    'orgs --csv',
    'api GET /orgs/sites',
    'audit list --help',
    `audit export --org ${uuid(1)}`,
    `logs tail ${uuid(5)} --kind diagnostic --cursor-file all.cursor`,
    `logs tail -f ${uuid(5)} --kind diagnostic --cursor-file all.cursor`,
  ])('of svc %s ends in one line and exit 1', async (words) => {
    const { code, stderr } = await shell(`svc ${words} > /dev/full`)
    expect([code, stderr]).toEqual([
      1,
      'Error: Cannot write to standard output: ENOSPC: no space left on device\n',
    ])
  })

  it.each(['orgs --json', 'enroll list -o ndjson --all', 'top --json', 'top --json --once'])(
    'of svc %s is said in JSON',
    async (words) => {
      const result = await shell(`svc ${words} > /dev/full`)
      expect([result.code, failureOf(result).code]).toEqual([1, 'output_failed'])
      expect(result.stderr.trimEnd().split('\n')).toHaveLength(1)
    },
  )

  it('does not matter on standard error', async () => {
    expect(await shell('svc orgs -q 2> /dev/full')).toMatchObject({ code: 0, stderr: '' })
    expect(await shell('svc orgs -q --url http://127.0.0.1:1 2> /dev/full')).toMatchObject({ code: 4 })
  })
})

describe('a closed stream', () => {
  it('of either kind ends nothing', async () => {
    expect(await shell('svc orgs -q >&-')).toMatchObject({ code: 0, stderr: '' })
    expect(await shell('svc orgs -q 2>&-')).toMatchObject({ code: 0 })
  })

  it.each(['>&-', '> /dev/null'])(
    '(%s) is given no secret that is displayed only once, which nobody would have',
    async (nowhere) => {
      const create = 'svc enroll create --name b --org a'
      const before = service.calls('POST /enrollment-keys').length
      const { code, stderr } = await shell(`${create} ${nowhere}`)
      expect([code, stderr]).toEqual([
        2,
        'Error: The key is displayed only once and standard output leads nowhere\nHint: add --out-file FILE\n',
      ])
      expect(service.calls('POST /enrollment-keys')).toHaveLength(before)
      expect(await shell(`${create} --out-file kept${nowhere.length} ${nowhere}`)).toMatchObject({ code: 0 })
      expect(home.read(`kept${nowhere.length}`)).toBe('a-secret\n')
      expect((await shell(create)).stdout).toBe('a-secret\n')
    },
  )

  it('that its reader has left is no failure, and shows no stack', async () => {
    const line = 'set -o pipefail; svc orgs -q | true; a=$?; svc nothing 2>&1 >/dev/null | true; echo $a $?'
    expect(await shell(line)).toMatchObject({ stdout: '0 2\n', stderr: '' })
  })
})

describe('a file that cannot be written', () => {
  const at = 'SVC_CONFIG_DIR=/dev/null/x'
  it.each([
    ['the configuration', `${at} svc context add a --url http://127.0.0.1:1`, 1],
    ['a session', `${at} svc login --email a@b.c --password-stdin --store file < /dev/null`, 1],
    ['a secret', 'svc enroll create --name b --out-file /dev/null/x', 2],
    ['an export', `svc audit export --org ${uuid(1)} --out-file /dev/null/x`, 2],
    ['a report', 'svc audit report --html /dev/null/x', 2],
  ])('(%s) ends a command in one line', async (_, line, exit) => {
    const { code, stderr } = await shell(line)
    expect(stderr).not.toMatch(/^\s+at |Unexpected/m)
    expect([code, stderr]).toEqual([exit, expect.stringMatching(/^Error: .*\/dev\/null\/x.*\n/)])
  })
})

/** Nobody can write it, root included, until the test ends; undefined where that cannot be. */
function readOnly(path: string): string | undefined {
  if (process.getuid?.() === 0) {
    if (spawnSync('chattr', ['+i', path]).status !== 0) return undefined
    onTestFinished(() => void spawnSync('chattr', ['-i', path]))
  } else {
    chmodSync(path, 0o555)
    onTestFinished(() => chmodSync(path, 0o755))
  }
  return path
}

/** Commands that write into a file of the command line, and the file. */
const writers = (file: string): [string, string][] => [
  ['a secret', `svc enroll create --name b --org ${uuid(1)} --out-file ${file}`],
  ['an export', `svc audit export --org ${uuid(1)} --out-file ${file}`],
  ['a report', `svc audit report --html ${file}`],
  ['a cursor', `svc logs tail ${uuid(5)} --kind diagnostic --cursor-file ${file}`],
  ['pins', `svc audit verify --pin ${file}`],
  ['a plan', `svc config plan none.yaml --out ${file}`],
]

/** Ends with exit 2 in one line that names the file, before anything was asked of the service. */
async function expectRefused(line: string, file: string) {
  const before = service.seen.length
  const { code, stdout, stderr } = await shell(line)
  expect({ line, code, stdout, stderr }).toEqual({
    line,
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/^Error: [^\n]*\n$/),
  })
  expect(stderr).toContain(file)
  expect(stderr).toMatch(/EACCES|EPERM|EROFS/)
  expect(service.seen.slice(before).map(({ method, path }) => `${method} ${path}`)).toEqual([])
}

const noDiskHere = noDisk()

describe('a file of the command line that is read-only', () => {
  it('within a folder ends a command before its work', async (test) => {
    const folder = join(home.path, 'kept-folder')
    mkdirSync(folder)
    if (readOnly(folder) === undefined) test.skip('no file can be made immutable here')
    for (const [, line] of writers(join(folder, 'new'))) await expectRefused(line, join(folder, 'new'))
  })

  it('itself is replaced by nothing', async (test) => {
    const pins = '{"version":1,"chains":{}}\n'
    const file = home.write('kept-pins.json', pins)
    if (readOnly(file) === undefined) test.skip('no file can be made immutable here')
    for (const [, line] of writers(file).slice(3)) await expectRefused(line, file)
    expect(home.read('kept-pins.json')).toBe(pins)
  })

  it.skipIf(noDiskHere)('is all there is on a read-only file system', async () => {
    const disk = await smallDisk(65_536)
    disk.setReadOnly()
    for (const [, line] of writers(join(disk.path, 'new'))) await expectRefused(line, join(disk.path, 'new'))
  })
})

describe.skipIf(noDiskHere)('a file that fills its disk', () => {
  it('is a failure in one line, and leaves no part', async () => {
    const disk = await smallDisk(65_536)
    disk.fill(4096)
    service.answers['GET /audit-logs/chain'] = { body: '{"a":1}\n'.repeat(20_000) }
    const file = join(disk.path, 'chain')
    const { code, stderr } = await shell(
      `svc audit export --org ${uuid(1)} --out-file ${file}; a=$?; ls ${file}*; exit $a`,
    )
    expect([code, stderr.split('\n')[0]]).toEqual([
      1,
      `Error: Cannot write ${file}: ENOSPC: no space left on device, write`,
    ])
    expect(stderr).toContain('No such file')
  })

  it('takes no secret: nothing is made that nobody would have', async () => {
    const disk = await smallDisk(65_536)
    disk.fill()
    const before = service.calls('POST /enrollment-keys').length
    const file = join(disk.path, 'secret')
    const { code, stderr } = await shell(`svc enroll create --name b --org a --out-file ${file}`)
    expect([code, stderr]).toEqual([
      1,
      `Error: Cannot write ${file}: ENOSPC: no space left on device, write\n`,
    ])
    expect(service.calls('POST /enrollment-keys')).toHaveLength(before)
  })

  it('keeps a cursor out: what was read is printed, with the place to go on from', async () => {
    const disk = await smallDisk(65_536)
    disk.fill()
    const file = join(disk.path, 'cursor')
    const { code, stdout, stderr } = await shell(
      `svc logs tail ${uuid(5)} --kind diagnostic --cursor-file ${file}`,
    )
    expect([code, stdout]).toEqual([1, expect.stringContaining('up')])
    expect(stderr).toMatch(/^To continue from here: --after \S+\nError: Cannot write \S+: ENOSPC[^\n]*\n$/)
  })
})

it('a file that cannot be read ends a command in one line, and exit 2', async () => {
  const { code, stderr } = await shell(`svc config export --merge ${home.path}`)
  expect([code, stderr]).toEqual([2, `Error: Cannot read the file from ${home.path}: EISDIR\n`])
})
