import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { generateX25519Identity, identityToRecipient } from 'age-encryption'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { serviceUnitText } from '../../src/cli/service/unit.ts'
import { kinds } from '../daemon/backup/filled.ts'
import { temporaryFolder } from '../databases.ts'
import { adminEmail, adminPassword } from '../harness.ts'
import { runScript } from '../markdown-blocks.ts'
import { OwnPostgres } from '../own-postgres.ts'
import { freePort } from '../postgres.ts'
import { type Block, blocksOf, guidePath, pageOf, remedies, replaced, textOf } from './guide.ts'
import { faultOf, namedCommands } from './named-commands.ts'

/*
 * The guide of operators, docs/operations: each block of commands is run, page after page, on one installation that the blocks
 * make in a folder.
 */

const root = fileURLToPath(new URL('../..', import.meta.url))
const has = (program: string) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0
const pages = globSync('*.md', { cwd: guidePath })
  .map((file) => file.slice(0, -3))
  .sort()
const procedures = ['install', 'proxy', 'monitor', 'backup', 'secrets', 'upgrade', 'containers', 'remove']

/**
 * What this test cannot run: it changes the users and packages of the machine, needs systemd, Docker or a cluster, or asks a person.
 * What needs the files of a release is run with them (test/packaging/release.test.ts).
 */
const notRun: Record<string, string[]> = {
  install: ['release', 'release', 'root', 'root', 'root', 'systemd', 'terminal'],
  proxy: ['systemd'],
  monitor: ['prometheus', 'systemd'],
  upgrade: ['root', 'root'],
  containers: ['docker', 'docker', 'docker', 'docker', 'kubernetes', 'terminal'],
  remove: ['systemd', 'root'],
}

describe('the guide', () => {
  it('is listed in its index, and runs everything that a test can run', () => {
    const listed = [...pageOf('README').matchAll(/^\| \[(.+)\.md\]/gm)].map(([, page]) => page)
    expect(listed.sort()).toEqual(pages.filter((page) => page !== 'README'))
    const all = pages.flatMap(blocksOf)
    expect(all.filter(({ language }) => language !== 'sh')).toEqual([])
    const marked = Object.groupBy(
      all.filter((one) => one.notRun !== undefined),
      ({ page }) => page,
    )
    const reasons = Object.entries(marked).map(([page, blocks]) => [page, blocks!.map((one) => one.notRun)])
    expect(Object.fromEntries(reasons)).toEqual(notRun)
    const run = [...procedures, 'postgres']
    expect(all.filter(({ page }) => !run.includes(page))).toEqual([])
    expect(remedies().length).toBeGreaterThan(10)
  })

  it('names only settings and secrets that svc-serve(8) has, and generates each secret of the unit', () => {
    const unit = textOf('svc.service')
    const secrets = [...unit.matchAll(/^LoadCredential=(\w+):/gm)].map(([, name]) => name!)
    const named = [...textOf('svc.env').matchAll(/^(\w+)=/gm)].map(([, name]) => name!)
    const manual = readFileSync(join(root, 'man/svc-serve.8.md'), 'utf8')
    for (const name of [...secrets, ...named]) expect(manual).toMatch(new RegExp(`\\b${name}\\b`))
    for (const name of secrets) {
      expect(blocksOf('install').some(({ script }) => script.includes(name))).toBe(true)
    }
  })

  it('has the unit that `svc serve install` and the packages write', () => {
    const placement = { program: '/usr/local/bin/svc', user: 'svc', etc: '/etc/svc', dataDir: '/var/lib/svc' }
    expect(textOf('svc.service').replace(/^#.*\n/, '')).toBe(serviceUnitText(placement))
  })

  it('has an svc-admin that reads svc.env as systemd does, and goes without credentials', () => {
    const folder = mkdtempSync(join(tmpdir(), 'svc-admin-'))
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const put = (name: string, text: string) => writeFileSync(join(folder, name), text, { mode: 0o755 })
    put('svc.env', '; a comment\n# another\nPORT="3100"\nMAIL_FROM=\'a=b@example.com\'\nHOST=127.0.0.1')
    put('setpriv', '#!/bin/sh\nshift 4\nexec "$@"\n')
    put('svc', '#!/bin/sh\necho "$PORT $MAIL_FROM $HOST $1"\n')
    const env = { PATH: `${folder}:${process.env.PATH}`, SVC_ETC: folder, SVC_USER: 'nobody' }
    const { stdout, stderr } = spawnSync('sh', [join(guidePath, 'svc-admin'), 'doctor'], { env })
    expect([String(stdout), String(stderr)]).toEqual(['3100 a=b@example.com 127.0.0.1 doctor\n', ''])
  })

  const manuals = globSync('*.md', { cwd: join(root, 'man') }).map((file) => join('man', file))
  const read = [...pages.map((page) => join(guidePath, `${page}.md`)), ...manuals, 'README.md']
  /** Flags of other programs, and names of what is signed. */
  const notOfSvc = ['--postgres', 'svc agent proof', 'svc audit signing key']
  it.each(read)('%s names only commands and flags that are there', (file) => {
    const named = namedCommands(readFileSync(resolve(root, file), 'utf8'))
    const faults = named.filter((line) => !notOfSvc.includes(line)).flatMap((line) => faultOf(line) ?? [])
    expect(faults).toEqual([])
  })

  it('is read for commands wherever they stand', () => {
    const counts = read.map((file) => namedCommands(readFileSync(resolve(root, file), 'utf8')).length)
    expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(200)
    const text =
      'Run `svc db drill DIR`.\n\n| `svc-admin keys list` | `--recipient` |\n\n    svc db status   shows it\n'
    const blocks = '```sh not-run=root\nsvc mfa setup\nrm a\n```\n\n```sh\nsvc orgs\n```\n'
    expect(namedCommands(text + blocks)).toEqual([
      'svc db drill DIR',
      'svc-admin keys list',
      '--recipient',
      'svc db status',
      'svc mfa setup',
    ])
    expect(
      ['svc db dril', 'svc databases', 'svc db drill --fast', 'svc db status DIR', '--recipients'].map(
        faultOf,
      ),
    ).toEqual([
      'there is no svc db dril',
      'there is no svc databases',
      'svc db drill has no --fast',
      'svc db status takes no DIR',
      'no command has the flag --recipients',
    ])
  })

  const links = /\]\(([^)#]+)\)/g
  it.each(pages)('%s links to files that are there', (page) => {
    const named = [...pageOf(page).matchAll(links)].map(([, path]) => path!)
    expect(named.filter((path) => !existsSync(join(guidePath, path)))).toEqual([])
  })
})

type Sandbox = { env: Record<string, string>; folder: string; kind: string }

/** A machine of its own as far as the guide goes: its folders, the unit, the settings, and the programs that the guide calls. */
async function sandbox(kind: 'sqlite' | 'postgres'): Promise<Sandbox> {
  const folder = await temporaryFolder()
  const [etc, units, bin, data, backups] = ['etc', 'units', 'bin', 'data', 'backups'].map((name) => {
    mkdirSync(join(folder, name), { mode: 0o700 })
    return join(folder, name)
  }) as [string, string, string, string, string]
  const program = (name: string, script: string) => {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`)
    chmodSync(join(bin, name), 0o755)
  }
  program('svc', `exec '${process.execPath}' '${root}/bin/svc.js' "$@"`)
  program('systemctl', `exec '${process.execPath}' '${root}/test/operations/systemctl.js' "$@"`)
  program('journalctl', 'cat "$SANDBOX/log"')
  const prefix = join(folder, 'prefix')
  mkdirSync(join(prefix, 'lib/node_modules'), { recursive: true })
  symlinkSync(root, join(prefix, 'lib/node_modules/svc'))
  const port = String(await freePort())
  const settings = replaced(textOf('svc.env'), {
    '/var/lib/svc': data,
    'PORT=3000': `PORT=${port}`,
    'admin@example.com': adminEmail,
  })
  writeFileSync(join(etc, 'svc.env'), `${settings}SVC_ADMIN_PASSWORD=${adminPassword}\n`)
  const unit = replaced(textOf('svc.service'), { '/usr/local/bin/svc': join(bin, 'svc'), '/etc/svc': etc })
  writeFileSync(join(units, 'svc.service'), unit)

  const identity = await generateX25519Identity()
  writeFileSync(join(folder, 'identity.txt'), `${identity}\n`)
  const server = kind === 'postgres' ? await OwnPostgres.begin() : undefined
  const env = {
    PATH: `${bin}:${guidePath}:${process.env.PATH}`,
    HOME: folder,
    NODE_COMPILE_CACHE: join(inject('temporaryFolder'), 'compiled'),
    PREFIX: prefix,
    SANDBOX: folder,
    UNITS: units,
    SVC_ETC: etc,
    BACKUPS: backups,
    SVC_DATA_DIR: data,
    PORT: port,
    SVC_URL: `http://127.0.0.1:${port}`,
    SVC_USER: 'root',
    SVC_CREDENTIAL_STORE: 'file',
    RECIPIENT: await identityToRecipient(identity),
    IDENTITY: join(folder, 'identity.txt'),
    ...(server && {
      DATABASE_ADMIN_URL: server.databaseUrl,
      DATABASE_HOST: new URL(server.databaseUrl).host,
    }),
  }
  onTestFinished(() => runScript('systemctl stop svc', env, folder).then(() => undefined))
  return { env, folder, kind }
}

async function runBlock(
  { page, script, exits }: Pick<Block, 'page' | 'script' | 'exits'>,
  { env, folder }: Sandbox,
) {
  const { code, output } = await runScript(script, env, env.HOME!)
  const log = existsSync(join(folder, 'log')) ? readFileSync(join(folder, 'log'), 'utf8').slice(-2000) : ''
  expect(exits, `${page}:\n${script}\n${output}\n${log}`).toContain(code)
}

/** Each shell finds the script where the guide puts it. */
function loadCompletions(prefix: string): void {
  const loaded: [string, string[], string][] = [
    [
      'bash',
      ['--norc', '-c', '. "$1" && complete -p svc', '-', `${prefix}/share/bash-completion/completions/svc`],
      '-F _svc',
    ],
    [
      'zsh',
      [
        '-fc',
        'fpath=("$1" $fpath); autoload -U compinit; compinit -u -D; print $_comps[svc]',
        '-',
        `${prefix}/share/zsh/site-functions`,
      ],
      '_svc',
    ],
    [
      'fish',
      [
        '--no-config',
        '-c',
        'source $argv[1]; complete -c svc',
        `${prefix}/share/fish/vendor_completions.d/svc.fish`,
      ],
      '__svc_complete',
    ],
  ]
  for (const [shell, args, says] of loaded) {
    if (!has(shell)) continue
    const { stdout, stderr } = spawnSync(shell, args, { encoding: 'utf8' })
    expect({ shell, stderr, stdout }).toEqual({ shell, stderr: '', stdout: expect.stringContaining(says) })
  }
}

/** What keeps Postgres from dropping the role: a table, a right and a whole database. */
const ownsElsewhere = `psql -v ON_ERROR_STOP=1 "$DATABASE_ADMIN_URL" -c 'create database "other place"' \\
  -c 'create database of_svc owner svc' -c '\\connect "other place"' -c 'create table kept ()' -c 'create table shown ()' \\
  -c 'alter table kept owner to svc' -c 'grant select on shown to svc'`

describe.each(kinds)('on %s', (kind) => {
  const lacking = [
    ...(process.getuid?.() === 0 ? [] : ['root']),
    ...['openssl', 'curl', 'setpriv', ...(kind === 'postgres' ? ['psql'] : [])].filter((one) => !has(one)),
  ]
  if (lacking.length > 0) console.warn(`skipped: the guide on ${kind} needs ${lacking.join(', ')}`)

  it.skipIf(lacking.length > 0)(
    'each block and each remedy of the guide works',
    { timeout: 400_000 },
    async () => {
      const machine = await sandbox(kind)
      const signIn = `printf %s '${adminPassword}' | svc login --url "$SVC_URL" --email ${adminEmail} --password-stdin
      secret=$(svc mfa setup --jq .secret)
      svc mfa enable --code "$(node '${root}/test/trips/otp.js' "$secret")"`
      for (const page of kind === 'postgres' ? ['postgres', ...procedures] : procedures) {
        if (page === 'remove' && kind === 'postgres')
          await runBlock({ page: 'what keeps the role', script: ownsElsewhere, exits: [0] }, machine)
        for (const block of blocksOf(page))
          if (block.notRun === undefined && (block.on ?? kind) === kind) await runBlock(block, machine)
        if (page === 'install') loadCompletions(machine.env.PREFIX!)
        if (page === 'install') await runBlock({ page: 'sign-in', script: signIn, exits: [0] }, machine)
        if (page === 'monitor')
          for (const script of remedies())
            await runBlock(
              { page: 'troubleshooting', script, exits: /doctor/.test(script) ? [0, 1, 2] : [0] },
              machine,
            )
      }
      expect(
        globSync(join(machine.env.PREFIX!, 'share/**'), { withFileTypes: true }).filter((one) =>
          one.isFile(),
        ),
      ).toEqual([])
      for (const name of ['SVC_DATA_DIR', 'SVC_ETC']) expect(existsSync(machine.env[name]!)).toBe(false)
    },
  )
})

const noSystemd = has('systemd-analyze') ? undefined : 'systemd-analyze is not installed'

describe.skipIf(noSystemd !== undefined)('the examination by a timer', () => {
  it('is units that systemd accepts, and runs a command that is there', async () => {
    const folder = await temporaryFolder()
    const service = replaced(textOf('svc-doctor.service'), {
      '/usr/local/sbin/svc-admin doctor': '/bin/true',
    })
    writeFileSync(join(folder, 'svc-doctor.service'), service)
    writeFileSync(join(folder, 'svc-doctor.timer'), textOf('svc-doctor.timer'))
    const files = ['service', 'timer'].map((kind) => join(folder, `svc-doctor.${kind}`))
    const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...files], {
      encoding: 'utf8',
    })
    expect([status, stdout, stderr]).toEqual([0, '', ''])
    const [, command = ''] = /^ExecStart=\S+\/(svc-admin .*)$/m.exec(textOf('svc-doctor.service'))!
    expect(faultOf(command)).toBe(undefined)
    expect(blocksOf('install').some(({ script }) => script.includes('/usr/local/sbin/svc-admin'))).toBe(true)
  })
})

describe.skipIf(noSystemd !== undefined)(`the unit (${noSystemd ?? 'systemd of this machine'})`, () => {
  it('is one that systemd accepts, and leaves the service few privileges', async () => {
    const folder = await temporaryFolder()
    const unit = replaced(textOf('svc.service'), { '/usr/local/bin/svc': '/bin/true', '=svc\n': '=root\n' })
    const file = join(folder, 'svc.service')
    writeFileSync(file, unit.replace('StateDirectory=root', 'StateDirectory=svc'))
    const verified = spawnSync('systemd-analyze', ['verify', '--man=no', file], { encoding: 'utf8' })
    expect([verified.status, verified.stdout, verified.stderr]).toEqual([0, '', ''])
    // From 0 to 10, times ten; as root it would be worse.
    writeFileSync(file, readFileSync(file, 'utf8').replaceAll('=root\n', '=svc\n'))
    const args = ['security', '--offline=true', '--threshold=20', file]
    const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
    expect(status, stdout.slice(-200)).toBe(0)
  })
})
