import { execFile, execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { CommandContext } from '../../src/cli/base.ts'
import { enrollInstructions } from '../../src/cli/enroll-instructions.ts'
import { putRelease } from '../agents/directory.ts'
import { sha256, signedRelease } from '../agents/signed-release.ts'
import { openMigrated, temporaryFolder } from '../databases.ts'
import { builds } from '../device-agent/update/machine.ts'
import { serviceOn, type TestService } from '../harness.ts'
import { replaced } from '../operations/guide.ts'
import { buildWorld, type World } from '../world.ts'
import { failureOf, Home } from './run.ts'

const build = builds()
const run = promisify(execFile)
const home = new Home()
const program = 'svc-agent-linux-amd64'
/** Later than what the world offers. */
const version = '9.0.0'
let service: TestService
let world: World
let releases: string

beforeAll(async () => {
  releases = await temporaryFolder()
  service = await serviceOn(await openMigrated('sqlite'), {
    env: {
      BINARY_SOURCE: 'local',
      AGENT_BINARY_DIR: releases,
      OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
    },
  })
  world = await buildWorld(service)
  const files = { [program]: readFileSync(build(version)), 'svc-agent-windows-amd64.exe': Buffer.from('MZ') }
  await putRelease(releases, signedRelease(version, { files }))
  const client = service.client(world.tokens.system)
  await client.call(api.agentVersions.sync, { query: { version, promote: 'false' } })
  await client.call(api.agentVersions.promote, { body: { version } })
})
afterAll(async () => {
  await service.close()
  home.remove()
})

const env = () => ({ SVC_URL: service.url, SVC_TOKEN: world.tokens.bakery })
const create = (...args: string[]) => home.run(['enroll', 'create', ...args], { env: env() })

/** Runs the line as a person without privileges can: in a folder of its own, without systemd. */
async function runThere(line: string) {
  const folder = await temporaryFolder()
  const stateDir = join(folder, 'state')
  const where = ` install --state-dir ${stateDir} --unit-dir ${join(folder, 'units')} --user ${process.env.USER ?? 'root'} `
  const script = replaced(line, { ' install ': where })
  const told = { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, HOME: folder, TMPDIR: folder }
  const child = run('sh', [], { env: told })
  child.child.stdin!.end(script)
  const outcome = await child.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  )
  return { ...outcome, stateDir, folder, told }
}

describe('svc enroll create --instructions linux', () => {
  it('prints one line for sh, which downloads and checks the agent and enrolls the machine', async () => {
    const { code, stdout, stderr } = await create('--name', 'web', '--instructions', 'linux')
    expect({ code, stderr }).toMatchObject({ code: 0, stderr: expect.stringContaining('run it as root') })
    expect(stdout.trimEnd()).not.toContain('\n')
    expect(stdout).toContain(sha256(readFileSync(build(version))))
    const key = /printf '%s\\n' '([0-9a-f]{64})'/.exec(stdout)![1]!
    // It is in no argument of a program: printf is a part of the shell.
    expect(stdout.split(key)).toHaveLength(2)
    expect(stderr).not.toContain(key)
    const { stateDir, folder, told, ...outcome } = await runThere(stdout)
    expect(outcome, outcome.stderr).toMatchObject({ code: 0 })
    expect(readFileSync(join(stateDir, 'enrollment.key'), 'utf8')).toBe(`${key}\n`)
    expect(readFileSync(join(folder, 'units/svc-agent.service'), 'utf8')).toContain(`--url ${service.url}\n`)
    // What was downloaded is gone.
    expect(readdirSync(folder).sort()).toEqual(['state', 'units'])
    await run(
      join(stateDir, 'bin/svc-agent'),
      ['run', '--state-dir', stateDir, '--url', service.url, '--once'],
      {
        env: told,
      },
    )
    const { data } = await service.client(world.tokens.bakery).call(api.enrollmentKeys.list)
    expect(data.find(({ name }) => name === 'web')?.usageCount).toBe(1)
  })

  it('installs nothing that differs from the release', async () => {
    const { stdout } = await create('--name', 'changed', '--instructions', 'linux')
    const file = join(releases, version, program)
    const content = readFileSync(file)
    writeFileSync(file, content.toString('utf8').replace('svc-agent', 'svc-bgent'))
    const { code, stateDir, stderr } = await runThere(stdout)
    writeFileSync(file, content)
    expect(code).not.toBe(0)
    expect(stderr).toMatch(/checksum did NOT match/)
    expect(existsSync(stateDir)).toBe(false)
  })

  it('is a field of JSON, and in a file where one is named', async () => {
    const { stdout } = await create('--name', 'json', '--instructions', 'linux', '--json')
    const { key, instructions, name } = JSON.parse(stdout)
    expect([name, instructions]).toEqual(['json', expect.stringContaining(`'${key}'`)])
    const listed = await create(
      '--name',
      'csv',
      '--instructions',
      'linux',
      '--columns',
      'key,instructions',
      '-o',
      'csv',
    )
    expect(listed.stdout).toMatch(/^key,instructions\n[0-9a-f]{64},"?\(set -e/)
    const out = join(home.path, 'line.sh')
    const filed = await create('--name', 'filed', '--instructions', 'linux', '--out-file', out)
    expect(filed).toMatchObject({ code: 0, stdout: '' })
    expect(readFileSync(out, 'utf8')).toMatch(/^\(set -e.*\)\n$/)
  })

  it('makes no key where no agent is offered', async () => {
    const { code, stderr } = await create('--name', 'arm', '--instructions', 'windows/arm64')
    expect([code, stderr]).toEqual([
      3,
      expect.stringMatching(/No agent is offered for windows\/arm64.*sync-release/s),
    ])
    const { data } = await service.client(world.tokens.bakery).call(api.enrollmentKeys.list)
    expect(data.map(({ name }) => name)).not.toContain('arm')
    expect(failureOf(await create('--name', 'x', '--instructions', 'plan9', '--json')).code).toBe('usage')
  })
})

it('names the organization on a terminal as it was typed', async () => {
  const { stdout } = await home.terminal(['enroll', 'create', '--org', 'bakery', '--name', 'seen'], {
    env: { ...env(), SVC_TOKEN: world.tokens.system },
    columns: 120,
  })
  expect(stdout).toMatch(new RegExp(`Org id:.*${world.orgs.bakery.id} \\(bakery\\)`))
})

describe('the line', () => {
  const hostile = {
    url: "https://x.example/'; calc; echo '\u2019; calc; \u2018`$(calc)",
    downloadUrl: "https://x.example/a'b;calc;$(calc)`calc`\u2019;calc;\u2018?v=1&calc",
    key: "k'; calc; \u2019; calc",
  }
  const checksum = 'a'.repeat(64)
  async function lineFor(target: string, offer: object = { downloadUrl: hostile.downloadUrl, checksum }) {
    const session = { settings: { url: { value: hostile.url } }, anonymous: { call: async () => offer } }
    const { text } = await enrollInstructions.prepare(session as unknown as CommandContext, target)
    return text(hostile.key)
  }
  const { href } = new URL(hostile.downloadUrl)

  it('for sh hands on addresses and key as they are', async () => {
    const folder = await temporaryFolder()
    const put = (name: string, script: string) => {
      writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`)
      chmodSync(join(folder, name), 0o755)
    }
    mkdirSync(join(folder, 'tmp'))
    put('agent', `printf '%s\\0' "$@" > ${folder}/said; cat > ${folder}/key`)
    put('curl', `for last; do :; done; printf %s "$last" > ${folder}/asked; cp ${folder}/agent "$3"`)
    put('sha256sum', 'cat >/dev/null')
    put('calc', `touch ${folder}/calculated`)
    const told = { PATH: `${folder}:${process.env.PATH}`, TMPDIR: join(folder, 'tmp') }
    execFileSync('sh', [], { input: await lineFor('linux'), env: told })
    const read = (name: string) => readFileSync(join(folder, name), 'utf8')
    expect([read('asked'), read('key')]).toEqual([href, `${hostile.key}\n`])
    expect(read('said').split('\0').slice(0, -1)).toEqual([
      'install',
      '--url',
      hostile.url,
      '--enrollment-key',
      '-',
      '--yes',
    ])
    expect(existsSync(join(folder, 'calculated'))).toBe(false)
    expect(readdirSync(join(folder, 'tmp'))).toEqual([])
  })

  it('for PowerShell has them in quotation marks alone, of which it takes typographic ones for straight ones', async () => {
    const line = await lineFor('windows')
    const quote = /['\u2018-\u201b]/.source
    const literal = new RegExp(`${quote}((?:[^'\u2018-\u201b]|${quote}{2})*)${quote}`, 'g')
    const texts = [...line.matchAll(literal)].map(([, text]) =>
      text!.replace(/(['\u2018-\u201b])['\u2018-\u201b]/g, '$1'),
    )
    for (const said of [hostile.url, href, checksum, hostile.key]) expect(texts).toContain(said)
    const code = line.replace(literal, '')
    expect(code).not.toMatch(/calc|['\u2018-\u201b`]/)
    expect(code.split('').filter((one) => one === '{')).toHaveLength(code.split('}').length - 1)
    // The key comes by standard input.
    expect(line).toMatch(/ \| & \$f install --url .* --enrollment-key - --yes; /)
  })

  it('is not made of a checksum that is none', async () => {
    await expect(lineFor('linux', { downloadUrl: href, checksum: '$(calc)' })).rejects.toThrow('no SHA-256')
  })
})
