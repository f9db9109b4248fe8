import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { FakeService, organization, uuid } from './fake-service.ts'
import { binary, failureOf, Home, start } from './run.ts'

const home = new Home()
const service = new FakeService({
  'GET /orgs/': { body: { data: [organization(1, 'a', 'A')] } },
  'GET /orgs/sites': { body: '{"a":1}\n' },
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
  ])('of svc %s ends in one line and exit 1', async (words) => {
    const { code, stderr } = await shell(`svc ${words} > /dev/full`)
    expect([code, stderr]).toEqual([
      1,
      'Error: Cannot write to standard output: ENOSPC: no space left on device\n',
    ])
  })

  it('is JSON with --json', async () => {
    const result = await shell('svc orgs --json > /dev/full')
    expect([result.code, failureOf(result).code]).toEqual([1, 'output_failed'])
    expect(result.stderr.trimEnd().split('\n')).toHaveLength(1)
  })

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
