import { execFile, execFileSync, spawnSync } from 'node:child_process'
import {
  cpSync,
  globSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import S3rver from 's3rver'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { productionPackages } from '../../packaging/lockfile.ts'
import { stagePackages } from '../../packaging/stage.ts'
import { ServeProcess } from '../daemon/process.ts'
import { temporaryFolder } from '../databases.ts'
import { isSoak } from '../depth.ts'
import { testSecrets } from '../harness.ts'

/*
 * What `npm pack` makes, installed as npm does it: beside the packages that package-lock.json gives an installation, and no
 * others. npm would ask the registry for them.
 */

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)

/** For an installation on a server; and who downloads it pays with each new release. */
const max = { installed: 90e6, packed: 5e6 }

let folder: string
let packed: string
let svc: string

beforeAll(async () => {
  folder = await temporaryFolder()
  const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: root })
  packed = join(folder, stdout.trim().split('\n').at(-1)!)
  svc = join(folder, 'node_modules', 'svc')
  mkdirSync(svc, { recursive: true })
  execFileSync('tar', ['-xzf', packed, '-C', svc, '--strip-components=1'])
  stagePackages(folder)
})

const environment = () => ({ PATH: process.env.PATH, HOME: folder, SVC_DATA_DIR: join(folder, 'data') })
const program = () => join(svc, 'bin', 'svc.js')
const svcIn = (args: string[], env = {}) =>
  run(process.execPath, [program(), ...args], { cwd: folder, env: { ...environment(), ...env } })

describe('the npm package', () => {
  it('names all that an installation needs, and is small', () => {
    const files = globSync('**', { cwd: folder, withFileTypes: true }).filter((one) => one.isFile())
    const bytes = files.map(({ parentPath, name }) => statSync(join(parentPath, name)).size)
    expect(bytes.reduce((a, b) => a + b)).toBeLessThan(max.installed)
    expect(statSync(packed).size).toBeLessThan(max.packed)
    const { dependencies } = JSON.parse(readFileSync(join(svc, 'package.json'), 'utf8'))
    const installed = productionPackages().map((path) => path.slice('node_modules/'.length))
    expect(installed).toEqual(expect.arrayContaining(Object.keys(dependencies)))
    for (const bundled of ['fastify', 'kysely', 'undici', '@aws-sdk/client-s3']) {
      expect(installed).not.toContain(bundled)
    }
  })

  it('has pages, completions and the licenses of what is bundled, and no sources', async () => {
    const { man } = JSON.parse(readFileSync(join(svc, 'package.json'), 'utf8')) as { man: string[] }
    for (const page of man) {
      expect(readFileSync(join(svc, page), 'utf8')).toMatch(/^\.TH /m)
    }
    expect((await svcIn(['completion', 'bash'])).stdout).toMatch(/^# bash completion of svc\n/)
    for (const name of ['svc.bash', '_svc', 'svc.fish', 'svc.ps1'])
      expect(readFileSync(join(svc, 'dist/completions', name), 'utf8')).toContain('svc complete ')
    const licenses = readFileSync(join(svc, 'dist', 'third-party-licenses.txt'), 'utf8')
    for (const name of ['fastify', 'zod', '@aws-sdk/client-s3', '@smithy/core', 'echarts']) {
      expect(licenses).toMatch(new RegExp(`^${name} \\d\\S+ \\(`, 'm'))
    }
    expect(readdirSync(svc).sort()).toEqual(
      [
        'CHANGELOG.md',
        'LICENSE',
        'README.md',
        'bin',
        'dist',
        'man',
        'migrations',
        'oclif.manifest.json',
      ].concat('package.json'),
    )
    expect(readdirSync(join(svc, 'dist')).sort()).toEqual([
      'commands',
      'completions',
      'man',
      'sbom.cdx.json',
      'shared',
      'src',
      'third-party-licenses.txt',
    ])
  })

  it('has its bill of materials, with the packages that are installed beside it', () => {
    const sbom = JSON.parse(readFileSync(join(svc, 'dist/sbom.cdx.json'), 'utf8'))
    const { version, dependencies } = JSON.parse(readFileSync(join(svc, 'package.json'), 'utf8'))
    expect(sbom.metadata.component).toMatchObject({ name: 'svc', version })
    const purls = sbom.components.map(({ purl }: { purl: string }) => purl)
    for (const [name, wanted] of Object.entries(dependencies))
      expect(purls).toContain(`pkg:npm/${name.replace('@', '%40')}@${wanted}`)
    expect(purls.join()).toContain('pkg:npm/fastify@')
  })

  it('says what a registry shows of it', () => {
    const about = JSON.parse(readFileSync(join(svc, 'package.json'), 'utf8'))
    expect(about).toMatchObject({ license: 'Apache-2.0', bin: { svc: 'bin/svc.js' }, type: 'module' })
    expect(about.description).toMatch(/\w/)
    expect(about.keywords.length).toBeGreaterThan(3)
    expect(about.engines.node).toMatch(/\d/)
    for (const file of [about.bin.svc, ...about.man]) expect(statSync(join(svc, file)).isFile()).toBe(true)
  })

  it('is started by npx once it is installed', async () => {
    writeFileSync(join(folder, 'package.json'), '{"private":true,"dependencies":{"svc":"*"}}')
    await run('npm', ['rebuild', '--ignore-scripts', '--silent'], { cwd: folder })
    const { stdout } = await run('npx', ['--no', '--offline', 'svc', '--version'], {
      cwd: folder,
      env: environment(),
    })
    expect(stdout).toMatch(/^svc\/\d/)
  })

  const noMan = spawnSync('man', ['--version']).error !== undefined
  it.skipIf(!isSoak || noMan)('has its pages where man looks, once npm has installed it', async () => {
    // Without dependencies, which npm would ask the registry for: man needs none.
    const bare = await temporaryFolder()
    cpSync(svc, bare, { recursive: true })
    const { dependencies: _, ...pjson } = JSON.parse(readFileSync(join(svc, 'package.json'), 'utf8'))
    writeFileSync(join(bare, 'package.json'), JSON.stringify(pjson))
    const quiet = ['--silent', '--offline', '--ignore-scripts']
    const { stdout } = await run('npm', ['pack', ...quiet, '--pack-destination', bare], { cwd: bare })
    const prefix = await temporaryFolder()
    const args = ['install', ...quiet, '--global', '--prefix', prefix, join(bare, stdout.trim())]
    await run('npm', args, { cwd: bare })
    const env = { ...environment(), MANPATH: join(prefix, 'share/man') }
    for (const page of ['svc', 'svc-keys-create', 'svc-audit']) {
      const found = await run('man', ['-w', page], { env })
      expect(realpathSync(found.stdout.trim())).toContain(realpathSync(prefix))
    }
  })

  it('exports from each lazily imported package what the package exports', async () => {
    const outputs = JSON.parse(readFileSync(join(root, 'dist', '.contents.json'), 'utf8')) as Record<
      string,
      { entryPoint?: string }
    >
    const late = Object.entries(outputs).filter(([, { entryPoint }]) => entryPoint?.startsWith('late:'))
    const own = ['age-encryption', 'csv-parse/sync', 'nodemailer', 'proper-lockfile', 'qrcode', 'undici']
    own.push('@inquirer/prompts', 'ws', 'xml-crypto', 'yaml')
    const names = late.map(([, { entryPoint }]) => entryPoint!.slice('late:'.length))
    expect(names).toEqual(expect.arrayContaining(own))
    for (const [file, { entryPoint }] of late) {
      const name = entryPoint!.slice('late:'.length)
      if (!own.includes(name)) continue
      const exported = Object.keys((await import(pathToFileURL(join(svc, file)).href)) as object)
      const wanted = Object.keys((await import(name)) as object)
      expect(exported, name).toEqual(
        expect.arrayContaining(wanted.filter((one) => !/^module\.|^__/.test(one) && one !== 'default')),
      )
    }
  })

  it('serves, and backs up to object storage', async () => {
    const configureBuckets = [{ name: 'backups', configs: [] }]
    const directory = await temporaryFolder()
    const s3 = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory, configureBuckets })
    const { port } = await s3.run()
    onTestFinished(() => s3.close())
    const service = new ServeProcess({ dataDir: join(folder, 'data') }, { program: program() })
    const url = await service.listening(60_000)
    expect((await fetch(`${url}/docs`)).status).toBe(200)
    const keys = { BACKUP_S3_ACCESS_KEY_ID: 'S3RVER', BACKUP_S3_SECRET_ACCESS_KEY: 'S3RVER' }
    const open = { BACKUP_S3_ENDPOINT: `http://127.0.0.1:${port}`, OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' }
    const args = ['db', 'backup', '--out', 's3://backups', '--jq', '.rows']
    const { stdout } = await svcIn(args, { ...testSecrets, ...keys, ...open })
    expect(Number(stdout)).toBeGreaterThan(0)
    const stored = readdirSync(join(directory, 'backups')).filter((name) => name.startsWith('svc-'))
    expect(stored.length).toBeGreaterThan(0)
    expect((await service.stop()).code).toBe(0)
  })
})
