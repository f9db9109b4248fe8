import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { fileNames, shells } from '../../src/cli/completion/scripts.ts'
import { root } from '../laws/imports.ts'
import { FakeService, organization, page, uuid } from './fake-service.ts'
import { binary, Home, noTerminal, start } from './run.ts'

const identity = { email: 'a@example.com', scope: 'partner', orgId: null, partnerId: uuid(900) }
const orgs = [organization(1, 'blue-bakery', 'Blue Bakery'), organization(2, 'blue-cafe', 'Blue Café')]
/** Names come from machines of others: the second one would be run by a script that evaluates it. */
const devices = [
  'reception-1',
  'x$(touch pwned)`touch pwned`;touch pwned',
  'back office',
  '-y',
  'bell\u0007',
].map((hostname, n) => ({ id: uuid(20 + n), orgId: uuid(1), hostname, displayName: null }))

let service: FakeService
let home: Home

beforeEach(async () => {
  service = await new FakeService({
    'GET /orgs/': page(orgs),
    'GET /orgs/organizations': page(orgs),
    'GET /devices': page(devices),
    'GET /roles': page([{ id: uuid(40), name: 'Org Admin' }]),
    'GET /filters': page([{ id: uuid(50), orgId: uuid(1), name: 'Servers in Mitte' }]),
    'GET /webhooks': page([{ id: uuid(60), orgId: uuid(1), name: 'chat-alerts' }]),
  }).start()
  home = new Home()
  home.signIn(service.url, {}, { identity })
})

afterEach(async () => {
  await service.stop()
  home.remove()
})

/** The lines that are offered for words, or for a line where the shell hands over a line. */
async function offered(shell: string, ...words: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await home.run(['complete', shell, '--', ...words])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout.split('\n').filter(Boolean)
}

const values = async (shell: string, ...words: string[]) =>
  (await offered(shell, ...words)).map((line) => line.split('\t')[0])

/** A slow machine takes longer than the 200 ms: the background has the names for a later time. */
const eventually = (ask: () => Promise<unknown>) => expect.poll(ask, { timeout: 20_000, interval: 100 })

describe('svc complete', () => {
  it('offers commands, flags and the values of flags', async () => {
    expect(await offered('fish', 'dev')).toEqual([
      'dev\tTools for trying the service out',
      'devices\tManaged machines',
    ])
    expect(await values('zsh', 'devices', 'list', '--st')).toEqual(['--status'])
    expect(await values('zsh', 'devices', 'list', '--status', 'of')).toEqual(['offline'])
    expect(await values('fish', 'devices', 'list', '--status=of')).toEqual(['--status=offline'])
    expect(await values('bash', 'svc devices list --status=of')).toEqual(['offline'])
    expect(await values('bash', 'svc roles create --permission devices:r')).toEqual(['read'])
    expect(await values('fish', 'help', 'exit')).toEqual(['exit-codes'])
    expect(await values('fish', 'completion', 'po')).toEqual(['powershell'])
    expect(await values('fish', 'context', 'use', '')).toEqual(['test'])
    expect(await values('fish', 'db', 'backup', '--out', '')).toEqual([':files'])
    expect(await values('fish', 'comp')).toEqual(['completion'])
    expect(await values('fish', 'devices', 'list', '--json', '--js')).toEqual([])
    expect(await values('fish', 'api', '--', '--js')).toEqual([])
    expect(service.seen).toEqual([])
  })

  it('offers names of records, from the cache while they are fresh', async () => {
    await eventually(() => values('fish', 'orgs', 'show', 'blue-')).toEqual(['blue-bakery', 'blue-cafe'])
    const before = service.seen.length
    expect(await offered('fish', 'devices', 'list', '--org', 'blue-b')).toEqual(['blue-bakery\tBlue Bakery'])
    expect(service.seen).toHaveLength(before)
    const [file] = readdirSync(join(home.path, '.cache/svc/names'))
    expect(home.mode(`.cache/svc/names/${file}`)).toBe('600')
  })

  it('quotes what a shell would take apart, and leaves out what it could misunderstand', async () => {
    await eventually(() => values('bash', 'svc devices show back')).toEqual(['back\\ office'])
    await eventually(() => values('bash', 'svc devices show "back o')).toEqual(['back office'])
    await eventually(() => values('bash', 'svc devices show x')).toEqual([
      'x\\$\\(touch\\ pwned\\)\\`touch\\ pwned\\`\\;touch\\ pwned',
    ])
    await eventually(() => values('powershell', 'svc devices show back')).toEqual(["'back office'"])
    await eventually(() => values('fish', 'devices', 'show', '')).toEqual(
      devices.slice(0, 3).map(({ hostname }) => hostname),
    )
  })

  it('offers no names, and no error, without a service or a sign-in', async () => {
    await eventually(() => values('fish', 'orgs', 'show', '')).toHaveLength(2)
    await service.stop()
    expect(await values('fish', 'roles', 'show', '')).toEqual([])
    home.write('config/config.json', '{}')
    expect(await values('fish', 'orgs', 'show', '')).toEqual([])
  })

  it('does not wait for a service that is slow: the background keeps the names for the next time', async () => {
    let answer = () => {}
    const ended = new Promise<void>((resolve) => {
      answer = resolve
    })
    // Would stop the command for good, did it wait for the answer.
    service.answers['GET /orgs/organizations'] = async () => {
      await ended
      return page(orgs)
    }
    service.answers['GET /orgs/'] = service.answers['GET /orgs/organizations']
    expect(await values('fish', 'orgs', 'show', 'blue-')).toEqual([])
    answer()
    await eventually(() => values('fish', 'orgs', 'show', 'blue-')).toEqual(['blue-bakery', 'blue-cafe'])
  })

  it('renews a session in the background only', async () => {
    home.signIn(service.url, { expiresAt: 0 }, { identity })
    service.answers['POST /auth/refresh'] = {
      body: { tokens: { accessToken: 'access-2', refreshToken: 'refresh-2', expiresInSeconds: 900 } },
    }
    await eventually(() => values('fish', 'orgs', 'show', '')).toHaveLength(2)
    expect(home.json('config/sessions/test.json')).toMatchObject({
      accessToken: 'access-2',
      refreshToken: 'refresh-2',
    })
  })

  it('offers no names of others: they belong to whoever is signed in, and end with the sign-out', async () => {
    await eventually(() => values('fish', 'orgs', 'show', '')).toHaveLength(2)
    service.answers['GET /orgs/organizations'] = page([])
    service.answers['GET /orgs/'] = page([])
    home.signIn(service.url, {}, { identity: { ...identity, email: 'b@example.com' } })
    expect(await values('fish', 'orgs', 'show', '')).toEqual([])
    service.answers['POST /auth/logout'] = { body: { success: true } }
    await home.run(['logout'])
    expect(existsSync(join(home.path, '.cache/svc/names'))).toBe(false)
  })
})

const missing = (program: string) => spawnSync(program, ['--version']).error && `${program} is not installed`

/** How each shell is started without the files of its user, and loads the script. */
const started: Record<string, string[]> = {
  bash: ['bash', '--norc', '--noprofile', '-i'],
  zsh: ['zsh', '-f', '-i'],
  fish: ['fish', '--no-config', '-i'],
}
const setUp: Record<string, string> = {
  bash: 'PS1="REA""DY> "; source <(svc completion bash)\n',
  zsh: 'PROMPT="REA""DY> "; autoload -U compinit; compinit -u -D; source <(svc completion zsh)\n',
  fish: 'function fish_prompt; echo -n REA; echo -n "DY> "; end; svc completion fish | source\n',
}

describe.each(Object.keys(started))('the completion script in %s', (shell) => {
  const skipped = noTerminal || missing(shell)

  /** Types keys at a prompt, and Enter once `shown` is there; returns the arguments that the commands were run with. */
  async function typed(...lines: [keys: string, shown: string][]): Promise<string[]> {
    mkdirSync(join(home.path, 'bin'), { recursive: true })
    const wrapper = home.write(
      'bin/svc',
      `#!/bin/sh\ncase $1 in complet*) exec '${process.execPath}' '${binary}' "$@" ;; esac\nfor word; do printf '<%s>' "$word"; done; echo .\n`,
    )
    chmodSync(wrapper, 0o700)
    const line = `stty cols 120 rows 40; exec ${started[shell]!.join(' ')}`
    const env = { ...home.env, PATH: `${home.path}/bin:${home.env.PATH}`, TERM: 'xterm-256color' }
    const answers = lines.flatMap(([keys, shown]): [string, string][] => [
      ['READY> ', keys],
      [shown, '\n'],
    ])
    const { stdout } = await start('script', ['-qefc', line, '/dev/null'], env, home.path, {
      answers: [['', setUp[shell]!], ...answers, ['>.', 'exit\n']],
    })
    // biome-ignore lint/suspicious/noControlCharactersInRegex: sequences of the shell
    const text = stdout.replace(/\u001b(\[[\d;?>=]*[a-zA-Z]|[=>]|\][^\u0007]*\u0007)/g, '')
    return text.match(/<[^\n]*>\./g) ?? [text]
  }

  const title = `completes flags, values and names, and runs nothing that a device is named`
  it.skipIf(skipped)(`${title}${skipped ? ` (${skipped})` : ''}`, async () => {
    await eventually(() => values('fish', 'orgs', 'show', '')).toHaveLength(2)
    await eventually(() => values('fish', 'devices', 'show', '')).toHaveLength(3)
    for (const topic of ['roles', 'filters', 'webhooks'])
      await eventually(() => values('fish', topic, 'show', '')).toHaveLength(1)
    const ran = await typed(
      ['svc devi\t list --stat\t', 'us'],
      ['svc devices list --status=off\t', 'line'],
      ['svc orgs show blue-b\t', 'akery'],
      ['svc devices show ba\t', 'office'],
      ['svc devices show x\t', 'pwned'],
      ['svc roles show Or\t', 'Admin'],
      ['svc filters show Serv\t', 'Mitte'],
      ['svc webhooks show chat\t', 'alerts'],
    )
    expect(ran).toEqual([
      '<devices><list><--status>.',
      '<devices><list><--status=offline>.',
      '<orgs><show><blue-bakery>.',
      '<devices><show><back office>.',
      `<devices><show><${devices[1]!.hostname}>.`,
      '<roles><show><Org Admin>.',
      '<filters><show><Servers in Mitte>.',
      '<webhooks><show><chat-alerts>.',
    ])
    expect(existsSync(join(home.path, 'pwned'))).toBe(false)
  })

  it.skipIf(skipped)(
    `offers nothing, and says nothing, while the service is away${skipped ? ` (${skipped})` : ''}`,
    async () => {
      await service.stop()
      expect(await typed(['svc orgs show blue-b\t', 'blue-b'])).toEqual(['<orgs><show><blue-b>.'])
    },
  )
})

it.each(shells)('svc completion %s prints the script, which the build has too', async (shell) => {
  const { code, stdout } = await home.run(['completion', shell])
  expect({ code, stdout }).toMatchObject({ code: 0, stdout: expect.stringContaining('svc complete ') })
  expect(readFileSync(`${root}dist/completions/${fileNames[shell]}`, 'utf8')).toBe(stdout)
})

/** How each shell loads a file of the build, and then says what completes svc. */
const loading: [string, string[], string][] = [
  ['bash', ['--norc', '-c', '. "$1/svc.bash" && complete -p svc', '-'], '-F _svc svc\n'],
  [
    'zsh',
    ['-fc', 'fpath=("$1" $fpath); autoload -U compinit; compinit -u -D; print $_comps[svc]', '-'],
    '_svc\n',
  ],
  ['fish', ['--no-config', '-c', 'source $argv[1]/svc.fish; complete -c svc'], '__svc_complete'],
  ['pwsh', ['-NoProfile', '-Command', '& { . (Join-Path $args[0] svc.ps1); "loaded" }'], 'loaded'],
]
for (const [shell, args, says] of loading) {
  const skipped = missing(shell)
  it.skipIf(skipped)(`${shell} loads the file of the build${skipped ? ` (${skipped})` : ''}`, () => {
    const { stdout, stderr } = spawnSync(shell, [...args, `${root}dist/completions`], { encoding: 'utf8' })
    expect({ stderr, stdout }).toEqual({ stderr: '', stdout: expect.stringContaining(says) })
  })
}
