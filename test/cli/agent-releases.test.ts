import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { parseTrustKey, verifyManifest } from '../../src/agents/versions/manifest.ts'
import { FakeService, page, problem } from './fake-service.ts'
import { hasOpenssl } from './network.ts'
import { failureOf, Home } from './run.ts'

const home = new Home()
const service = new FakeService()
const at = '2026-01-31T12:00:00.000Z'
const id = '0197c1ff-2a64-7b31-9c0d-5e6f7a8b9c0d'
const file = {
  build: 'agent:linux/amd64',
  component: 'agent',
  platform: 'linux',
  architecture: 'x64',
  name: 'svc-agent-linux-amd64',
  checksum: 'a'.repeat(64),
  size: 7,
  promotedAt: at,
  rollbackAt: at,
}
const release = {
  version: '1.2.3',
  tag: 'v1.2.3',
  channel: 'stable',
  minFrom: null,
  minimumVersion: '1.0.0',
  notes: null,
  signingKeyId: 'k',
  builds: [file.build],
  promotedFor: [file.build],
  rollbackFor: [file.build],
  files: [file],
  createdAt: at,
  updatedAt: at,
}

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})
beforeEach(() => {
  service.seen.length = 0
  service.answers['GET /agent-versions'] = page([release])
  service.answers['GET /agent-versions/1.2.3'] = { body: release }
  service.answers['DELETE /agent-versions/1.2.3'] = { body: { success: true } }
  service.answers['POST /agent-versions/sync-release'] = {
    body: {
      version: '1.2.3',
      synced: ['agent:linux/amd64', 'helper:linux/amd64'],
      promoted: [],
      withheld: null,
    },
  }
  service.answers['POST /agent-versions/promote'] = {
    body: { promoted: ['agent:linux/amd64'], demoted: ['agent:linux/amd64@1.2.2'] },
  }
  service.answers['POST /agent-versions/rollback'] = {
    body: { promoted: ['agent:linux/amd64'], demoted: ['agent:linux/amd64@1.2.4'], endedRollout: id },
  }
})
afterAll(async () => {
  await service.stop()
  home.remove()
})

const svc = (...args: string[]) => home.run(['agent', ...args])

describe('svc agent', () => {
  it('syncs the latest or a named release, and lists its builds', async () => {
    const { code, stdout } = await svc('sync-release')
    expect([code, stdout]).toEqual([0, '1.2.3 is registered for agent:linux/amd64, helper:linux/amd64\n'])
    await svc('sync-release', 'v1.3.0-rc.1', '--no-promote', '-q')
    expect(service.seen.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'POST /agent-versions/sync-release',
      'POST /agent-versions/sync-release?version=v1.3.0-rc.1&promote=false',
    ])
    expect(JSON.parse((await svc('sync-release', '--json')).stdout)).toMatchObject({ version: '1.2.3' })
  })

  it.each([
    [502, 'release_host_failed', 8, { hint: 'is RELEASE_API_URL right?' }, 'is RELEASE_API_URL right?'],
    [422, 'release_refused', 6, { reason: 'no_trusted_keys' }, 'RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS'],
    [422, 'release_refused', 6, { reason: 'signed_release_manifest_required' }, 'svc agent sign-release'],
    [404, 'not_found', 3, { hint: 'it has to be there' }, 'it has to be there'],
    [409, 'rollout_in_progress', 6, {}, '--no-promote'],
    [501, 'releases_not_configured', 8, undefined, null],
  ])('gives a hint for a %i %s, and exits with %i', async (status, name, exit, details, hint) => {
    service.answers['POST /agent-versions/sync-release'] = problem(status, name, 'No', { details })
    const result = await svc('sync-release', '--json')
    expect([result.code, failureOf(result).hint]).toEqual([
      exit,
      hint === null ? null : expect.stringContaining(hint),
    ])
  })

  it('lists versions as a table, as IDs and in detail', async () => {
    const { stdout } = await svc('versions')
    expect(stdout).toBe(
      'VERSION  CHANNEL  PROMOTED FOR       ROLLBACK FOR       MIN FROM  BUILDS             CREATED AT\n' +
        `1.2.3    stable   agent:linux/amd64  agent:linux/amd64  -         agent:linux/amd64  ${at}\n`,
    )
    expect((await svc('versions', '-q')).stdout).toBe('1.2.3\n')
    expect((await svc('versions', 'show', '1.2.3')).stdout).toContain('svc-agent-linux-amd64')
    expect((await svc('versions', 'delete', '1.2.3', '--yes')).code).toBe(0)
    expect((await svc('versions', 'delete', '1.2.3')).code).toBe(2)
    expect(service.calls('DELETE /agent-versions/1.2.3')).toHaveLength(1)
  })

  it('explains why a registered version is not offered', async () => {
    const withheld = 'Machines were rolled back to 1.2.2'
    const body = { version: '1.2.3', synced: ['agent:linux/amd64'], promoted: [], withheld }
    service.answers['POST /agent-versions/sync-release'] = { body }
    expect((await svc('sync-release')).stdout).toBe(
      `1.2.3 is registered for agent:linux/amd64\nIt is not offered. ${withheld}\n`,
    )
  })

  it('rolls back after confirmation, and names the replaced version and the ended rollout', async () => {
    expect((await svc('rollback', '1.2.3')).code).toBe(2)
    expect(service.calls('POST /agent-versions/rollback')).toEqual([])
    const { code, stdout } = await svc('rollback', 'v1.2.3', '--platform', 'linux', '--yes')
    expect([code, stdout]).toEqual([
      0,
      'Machines with a newer version go back to it: agent:linux/amd64\n' +
        `Instead of agent:linux/amd64@1.2.4\nThe rollout ${id} is over\n`,
    ])
    expect(service.calls('POST /agent-versions/rollback')[0]?.body).toEqual({
      version: 'v1.2.3',
      platform: 'linux',
    })
  })

  it('promotes, and names the version offered before', async () => {
    const { stdout } = await svc('promote', '1.2.3', '--component', 'agent')
    expect(stdout).toBe('Offered to machines: agent:linux/amd64\nInstead of agent:linux/amd64@1.2.2\n')
    expect(service.calls('POST /agent-versions/promote')[0]?.body).toEqual({
      version: '1.2.3',
      component: 'agent',
    })
    expect((await svc('promote')).code).toBe(2)
  })
})

describe('svc agent sign-release', () => {
  const folder = join(home.path, 'dist')
  const key = join(home.path, 'release.key')
  const read = (name: string) => readFileSync(join(folder, name), 'utf8')
  const sign = (...args: string[]) => svc('sign-release', folder, ...args)

  beforeEach(() => {
    rmSync(folder, { recursive: true, force: true })
    rmSync(key, { force: true })
    mkdirSync(folder)
    for (const name of ['svc-agent-linux-amd64', 'svc-helper-darwin-arm64', 'README.md']) {
      writeFileSync(join(folder, name), `content of ${name}`)
    }
  })

  it('creates a key, signs with it, and prints the setting for the service', async () => {
    const { code, stdout } = await sign('--version', 'v1.2.3', '--new-key', key)
    const [, publicKey = ''] = /^RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS=(\S+)\n$/.exec(stdout) ?? []
    expect([code, home.mode('release.key')]).toEqual([0, '600'])
    const [text, signature] = [read('release-manifest.json'), read('release-manifest.json.sig')]
    const { manifest, keyId } = verifyManifest(text, signature, [parseTrustKey(publicKey)])
    const sha256 = (name: string) => createHash('sha256').update(`content of ${name}`).digest('hex')
    expect(manifest).toEqual({
      schemaVersion: 1,
      release: 'v1.2.3',
      assets: ['svc-agent-linux-amd64', 'svc-helper-darwin-arm64'].map((name) => ({
        name,
        sha256: sha256(name),
        size: `content of ${name}`.length,
      })),
    })
    const again = await sign('--version', '1.2.3', '--key-file', key, '--json')
    expect(JSON.parse(again.stdout)).toEqual({
      version: '1.2.3',
      builds: ['agent:linux/amd64', 'helper:darwin/arm64'],
      publicKey,
      keyId,
    })
    expect([read('release-manifest.json'), read('release-manifest.json.sig')]).toEqual([text, signature])
  })

  it.runIf(hasOpenssl)('signs so that openssl verifies it, with a key created by openssl', async () => {
    const at = (name: string) => join(home.path, name)
    execFileSync('openssl', ['genpkey', '-algorithm', 'ed25519', '-out', key])
    chmodSync(key, 0o600)
    expect(
      (
        await sign(
          '--version',
          '2.0.0',
          '--key-file',
          key,
          '--min-from',
          '1.0.0',
          '--minimum-version',
          '1.5.0',
        )
      ).code,
    ).toBe(0)
    writeFileSync(at('sig.bin'), Buffer.from(read('release-manifest.json.sig'), 'base64'))
    execFileSync('openssl', ['pkey', '-in', key, '-pubout', '-out', at('public.pem')])
    const check = ['pkeyutl', '-verify', '-pubin', '-inkey', at('public.pem'), '-rawin']
    const said = execFileSync('openssl', [
      ...check,
      '-in',
      join(folder, 'release-manifest.json'),
      '-sigfile',
      at('sig.bin'),
    ])
    expect(said.toString()).toContain('Signature Verified Successfully')
    expect(JSON.parse(read('release-manifest.json'))).toMatchObject({
      minFrom: '1.0.0',
      minimumVersion: '1.5.0',
    })
  })

  it('announces the key of future releases, signed with the current key', async () => {
    const next = join(home.path, 'next.key')
    const { stdout: first } = await sign('--version', '1.0.0', '--new-key', key)
    const { stdout } = await sign('--version', '1.1.0', '--key-file', key, '--new-key', next)
    const keys = stdout.trim().split('=').slice(1).join('=').split(',')
    expect(first).toBe(`RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS=${keys[0]}\n`)
    const text = read('release-manifest.json')
    const { manifest } = verifyManifest(text, read('release-manifest.json.sig'), [parseTrustKey(keys[0]!)])
    expect(manifest.nextKeys).toEqual([{ publicKeyB64: keys[1] }])
    // The key exists now, so it is reused instead of created again.
    await sign('--version', '1.2.0', '--key-file', key, '--new-key', next)
    expect(JSON.parse(read('release-manifest.json')).nextKeys).toEqual(manifest.nextKeys)
  })

  it.each([
    ['no key', [], /^Missing --key-file$/],
    ['a missing key file', ['--key-file', '/nowhere'], /^Cannot read --key-file from \/nowhere: ENOENT$/],
    ['an invalid version', ['--version', '1.2'], /^--version takes a version/],
    ['a minimum version above its own', ['--minimum-version', '1.2.4'], /comes after --version 1\.2\.3/],
    ['a --min-from that is not lower', ['--min-from', '1.2.3'], /does not come before/],
  ])('does nothing with %s', async (_, args, message) => {
    const version = args.includes('--version') ? [] : ['--version', '1.2.3']
    const result = await sign(...version, ...args, '--json')
    expect([result.code, failureOf(result).message]).toEqual([2, expect.stringMatching(message)])
    expect(() => read('release-manifest.json')).toThrow('ENOENT')
  })

  it('does nothing with a key that is readable by others, invalid, or of another kind', async () => {
    const none = home.write('none.key', 'not a key, but secret-looking: abc123')
    const wide = home.write('wide.key', 'x')
    chmodSync(wide, 0o644)
    for (const [path, message] of [
      [none, /is not an Ed25519 private key in PEM$/],
      [wide, /can be read by others \(mode 0644\)$/],
    ] as const) {
      const result = await sign('--version', '1.2.3', '--key-file', path, '--json')
      expect([result.code, failureOf(result).message]).toEqual([2, expect.stringMatching(message)])
      expect(result.stderr).not.toContain('abc123')
    }
  })

  it('does nothing without agent files, or with two files for one platform', async () => {
    await sign('--version', '1.2.3', '--new-key', key)
    rmSync(join(folder, 'release-manifest.json'))
    writeFileSync(join(folder, 'svc-agent-linux-x64'), 'the same machine')
    const twice = await sign('--version', '1.2.3', '--key-file', key, '--json')
    expect([twice.code, failureOf(twice).hint]).toEqual([2, expect.stringContaining('are the same')])
    for (const name of ['svc-agent-linux-x64', 'svc-agent-linux-amd64', 'svc-helper-darwin-arm64']) {
      rmSync(join(folder, name))
    }
    const none = await sign('--version', '1.2.3', '--key-file', key, '--json')
    expect([none.code, failureOf(none).message]).toEqual([
      2,
      expect.stringMatching(/^There is no file of an agent/),
    ])
    expect(() => read('release-manifest.json')).toThrow('ENOENT')
  })
})
