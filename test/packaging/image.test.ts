import { execFile, execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { execution, uid } from '../../packaging/image.ts'
import { writeImage } from '../../packaging/oci.ts'
import { temporaryFolder } from '../databases.ts'
import { isSoak } from '../depth.ts'
import { faultOf } from '../operations/named-commands.ts'
import { freePort } from '../postgres.ts'

/*
 * The container image. The soak makes it, and runs it as a container runtime does: in namespaces, as its user, on a root that is
 * read-only.
 */

const root = fileURLToPath(new URL('../..', import.meta.url))
const run = promisify(execFile)
const has = (program: string) => !spawnSync(program, ['--version']).error
const sha256 = (content: Buffer) => `sha256:${createHash('sha256').update(content).digest('hex')}`

type Descriptor = { mediaType: string; digest: string; size: number; annotations: Record<string, string> }
type Config = {
  created: string
  config: {
    User: string
    Env: string[]
    Entrypoint: string[]
    Cmd: string[]
    Healthcheck: { Test: string[] }
  }
  rootfs: { diff_ids: string[] }
  history: unknown[]
}

/** Unpacks an image, and checks each thing that it names. Returns its layers as files, not compressed. */
async function read(file: string) {
  const folder = await mkdtemp(join(tmpdir(), 'svc-image-read-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  execFileSync('tar', ['-xf', file, '-C', folder])
  const json = (path: string) => JSON.parse(readFileSync(join(folder, path), 'utf8'))
  const blob = ({ digest, size }: Descriptor) => {
    const path = `blobs/${digest.replace(':', '/')}`
    const content = readFileSync(join(folder, path))
    expect([sha256(content), content.length]).toEqual([digest, size])
    return { path, content }
  }
  const parsed = (one: Descriptor) => JSON.parse(blob(one).content.toString('utf8'))
  expect(json('oci-layout')).toEqual({ imageLayoutVersion: '1.0.0' })
  const [described, ...others] = json('index.json').manifests as Descriptor[]
  expect(others).toEqual([])
  const manifest = parsed(described!) as { config: Descriptor; layers: Descriptor[] }
  const config = parsed(manifest.config) as Config
  const layers = manifest.layers.map((layer, n) => {
    expect(layer.mediaType).toBe('application/vnd.oci.image.layer.v1.tar+gzip')
    const plain = gunzipSync(blob(layer).content)
    expect(sha256(plain)).toBe(config.rootfs.diff_ids[n])
    const path = join(folder, `layer-${n}.tar`)
    writeFileSync(path, plain)
    return path
  })
  expect(config.history).toHaveLength(layers.length)
  const paths = { Config: blob(manifest.config).path, Layers: manifest.layers.map((one) => blob(one).path) }
  expect(json('manifest.json')).toEqual([{ ...paths, RepoTags: [expect.stringMatching(/^svc:/)] }])
  return { described: described!, config, layers }
}

describe('an image', () => {
  /** A program with a link, and a folder for data. */
  async function small(umask: number, seconds = 1) {
    const before = process.umask(umask)
    const folder = await temporaryFolder()
    const tree = join(folder, 'tree')
    mkdirSync(join(tree, 'usr/bin'), { recursive: true })
    writeFileSync(join(tree, 'usr/bin/one'), '#!/bin/true\n')
    chmodSync(join(tree, 'usr/bin/one'), 0o755)
    symlinkSync('one', join(tree, 'usr/bin/other'))
    mkdirSync(join(tree, 'data'))
    for (const one of ['usr', 'usr/bin']) chmodSync(join(tree, one), 0o755)
    chmodSync(join(tree, 'data'), 0o700)
    for (const one of ['usr/bin/one', 'usr/bin', 'data']) utimesSync(join(tree, one), seconds, seconds)
    const file = join(folder, 'image.tar')
    writeImage(
      {
        name: 'svc',
        version: '1.2.3',
        layers: [{ tree, comment: 'all', owned: { uid, folders: ['data'] } }],
        execution: execution('1.2.3', '2026-01-31T12:00:00.000Z', undefined),
        seconds: 1_769_860_800,
        isQuick: true,
      },
      folder,
      file,
    )
    process.umask(before)
    return file
  }

  it('names each of its parts by its contents, and its files have one time and their owners', async () => {
    const { described, config, layers } = await read(await small(0o022))
    expect(described.annotations).toEqual({
      'org.opencontainers.image.ref.name': '1.2.3',
      'io.containerd.image.name': 'docker.io/library/svc:1.2.3',
    })
    expect(config.created).toBe('2026-01-31T12:00:00Z')
    const args = ['--list', '--verbose', '--numeric-owner', '--utc', '--file', layers[0]!]
    const lines = execFileSync('tar', args, { encoding: 'utf8' }).trim().split('\n')
    expect(lines.map((line) => line.replace(/ +/g, ' '))).toEqual([
      'drwxr-xr-x 0/0 0 2026-01-31 12:00 usr/',
      'drwxr-xr-x 0/0 0 2026-01-31 12:00 usr/bin/',
      '-rwxr-xr-x 0/0 12 2026-01-31 12:00 usr/bin/one',
      'lrwxrwxrwx 0/0 0 2026-01-31 12:00 usr/bin/other -> one',
      `drwx------ ${uid}/${uid} 0 2026-01-31 12:00 data/`,
    ])
  })

  it('has the same bytes, whoever makes it when', async () => {
    const [one, other] = [await small(0o077, 1), await small(0o002, 2)]
    expect(readFileSync(one).equals(readFileSync(other))).toBe(true)
  })

  it.skipIf(!has('skopeo'))('is one that another program reads', async () => {
    const { stdout } = await run('skopeo', ['inspect', '--config', `oci-archive:${await small(0o022)}`])
    expect(JSON.parse(stdout).config).toMatchObject({ User: `${uid}:${uid}`, StopSignal: 'SIGTERM' })
  })

  it('is run by nobody, with settings, and asks for its health by a command, that the program has', () => {
    const { User, Env, Entrypoint, Cmd, Healthcheck, Volumes } = execution(
      '1.2.3',
      '',
      undefined,
    ) as Config['config'] & { Volumes: object }
    expect(User).toMatch(/^[1-9]\d{4}:[1-9]\d{4}$/)
    const manual = readFileSync(join(root, 'man/svc-serve.8.md'), 'utf8')
    const settings = Env.map((one) => one.slice(0, one.indexOf('='))).filter(
      (one) => !/^(PATH|HOME)$/.test(one),
    )
    for (const name of settings) expect(manual).toMatch(new RegExp(`^\\|.*\\b${name}\\b.*\\|`, 'm'))
    expect(Env).toContain(`SVC_DATA_DIR=${Object.keys(Volumes)[0]}`)
    const [kind, ...check] = Healthcheck.Test
    expect(kind).toBe('CMD')
    for (const command of [[...Entrypoint, ...Cmd], check]) expect(faultOf(command.join(' '))).toBe(undefined)
  })
})

const lacking = ['apt-get', 'dpkg-deb', 'unshare'].filter((one) => !has(one))
if (process.getuid?.() !== 0) lacking.push('root')
if (isSoak && lacking.length > 0) console.warn(`skipped: the image needs ${lacking.join(', ')}`)

// It has a Node in it: to make it takes too long for each run.
describe.skipIf(!isSoak || lacking.length > 0)('the image of the service', { timeout: 1_200_000 }, () => {
  let folder: string
  let image: string
  const build = (out: string, args: string[] = [], env = {}) =>
    run(
      'sh',
      [
        '-c',
        `umask ${out === image ? '022' : '077'}; exec "$0" "$@"`,
        process.execPath,
        join(root, 'packaging/build-image.ts'),
        '--out',
        out,
        ...args,
      ],
      {
        cwd: root,
        env: { ...process.env, ...env },
      },
    )

  beforeAll(async () => {
    // Not in the memory of the machine: it is large.
    folder = await mkdtemp(join(tmpdir(), 'svc-image-test-'))
    image = join(folder, 'svc.oci.tar')
    await build(image)
    return () => rmSync(folder, { recursive: true, force: true })
  }, 1_200_000)

  it('is small, and has the same bytes when it is built again', async () => {
    expect(statSync(image).size).toBeLessThan(120e6)
    const again = join(folder, 'again.oci.tar')
    await build(again, [], { TZ: 'Asia/Tokyo', TMPDIR: folder })
    expect(spawnSync('cmp', [image, again], { encoding: 'utf8' })).toMatchObject({ status: 0, stdout: '' })
  })

  it('serves from a root that is read-only, as its user, and keeps its data', async () => {
    const { config, layers } = await read(image)
    const container = join(folder, 'container')
    mkdirSync(container)
    for (const layer of layers) execFileSync('tar', ['-xf', layer, '--numeric-owner', '-C', container])
    const { User, Env, Entrypoint, Cmd, Healthcheck } = config.config
    copyFileSync(join(root, 'test/packaging/image-root.sh'), join(folder, 'image-root.sh'))
    const port = String(await freePort())
    const env = {
      PATH: process.env.PATH,
      CONTAINER: container,
      IMAGE_USER: User,
      IMAGE_ENV: [...Env.filter((one) => !one.startsWith('PORT=')), `PORT=${port}`].join(' '),
      IMAGE_COMMAND: [...Entrypoint, ...Cmd].join(' '),
      IMAGE_HEALTH: Healthcheck.Test.slice(1).join(' '),
    }
    const args = ['--mount', '--fork', 'sh', join(folder, 'image-root.sh')]
    const { stdout } = await run('unshare', args, { env }).catch(
      (error: { stdout: string; stderr: string }) => ({ stdout: `${error.stdout}${error.stderr}` }),
    )
    expect(stdout).toMatch(/^passed$/m)
  })
})
