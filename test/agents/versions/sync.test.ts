import { createServer } from 'node:http'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../../src/api.ts'
import { newId } from '../../../src/core/new-id.ts'
import { listening } from '../../cli/network.ts'
import { onEveryDatabase } from '../../databases.ts'
import { type ServiceOptions, serviceOn, startService, type TestService } from '../../harness.ts'
import { newEntries } from '../../laws/audited.ts'
import { systemToken } from '../../world.ts'
import { type ReleaseHost, releaseHost } from '../release-host.ts'
import { keyOf, releaseKey, signedRelease } from '../signed-release.ts'

const labels = ['agent:linux/amd64', 'agent:linux/arm64', 'agent:windows/amd64']
const refused = (reason: string) =>
  expect.objectContaining({ status: 422, code: 'release_refused', details: { reason } })
const failed = (words: RegExp) =>
  expect.objectContaining({
    status: 502,
    code: 'release_host_failed',
    message: expect.stringMatching(words),
  })

onEveryDatabase((_, open) => {
  async function start({ host, env, ...more }: ServiceOptions & { host?: ReleaseHost } = {}) {
    const at = host ?? (await releaseHost())
    const service = await startService(open, { ...more, env: { ...at.env(), ...env } })
    return { host: at, service, ...(await actionsOn(service)) }
  }

  async function actionsOn(service: TestService) {
    const client = service.client(await systemToken(service))
    const sync = (query: { version?: string; promote?: 'true' | 'false' } = {}) =>
      client.call(api.agentVersions.sync, { query })
    const promoted = async () => {
      const rows = await client.call(api.agentVersions.list)
      return rows.data
        .flatMap(({ version, promotedFor }) => promotedFor.map((build) => `${build} ${version}`))
        .sort()
    }
    const versions = async () =>
      (await client.call(api.agentVersions.list)).data.map(({ version }) => version)
    return { client, sync, promoted, versions }
  }

  describe('a synced release', () => {
    it('is registered from its signed manifest, promoted, and leaves one audit entry', async () => {
      const { host, service, client, sync } = await start()
      const release = signedRelease('1.2.3', { minFrom: '1.0.0' })
      host.publish(release)
      const news = await newEntries(service)
      expect(await sync()).toEqual({ version: '1.2.3', synced: labels, promoted: labels, withheld: null })
      const entries = await news()
      expect(entries).toEqual([
        expect.objectContaining({
          action: 'agent.version.sync',
          resourceType: 'agent_version',
          resourceName: 'v1.2.3',
          details: {
            rawResourceId: '1.2.3',
            synced: labels,
            known: false,
            before: {},
            after: Object.fromEntries(labels.map((label) => [label, '1.2.3'])),
          },
        }),
      ])
      const shown = await client.call(api.agentVersions.show, { params: { version: 'v1.2.3' } })
      expect(shown).toMatchObject({
        version: '1.2.3',
        tag: 'v1.2.3',
        channel: 'stable',
        minFrom: '1.0.0',
        promotedFor: labels,
        notes: 'Notes of 1.2.3',
        signingKeyId: releaseKey.trustKey.keyId,
      })
      expect(shown.files[0]).toMatchObject({
        build: labels[0],
        component: 'agent',
        platform: 'linux',
        architecture: 'x64',
        name: 'svc-agent-linux-amd64',
        promotedAt: expect.any(String),
        size: release.files.get('svc-agent-linux-amd64')!.length,
      })
    })

    it('is found by its tag, with or without the v', async () => {
      const { host, sync } = await start()
      for (const version of ['1.0.0', '1.1.0', '1.2.0']) host.publish(signedRelease(version))
      expect(await sync({ version: 'v1.0.0' })).toMatchObject({ version: '1.0.0' })
      expect(await sync({ version: '1.1.0' })).toMatchObject({ version: '1.1.0' })
    })

    it('may have a tag without the v at its host', async () => {
      const { host, sync } = await start()
      host.publish({ ...signedRelease('1.0.0', { release: '1.0.0' }), tag: '1.0.0' })
      expect(await sync({ version: '1.0.0' })).toMatchObject({ version: '1.0.0' })
    })

    it('may be a candidate only when it is named', async () => {
      const { host, sync, promoted } = await start()
      host.publish(signedRelease('1.0.0'))
      host.publish(signedRelease('1.1.0-rc.1'))
      expect(await sync()).toMatchObject({ version: '1.0.0' })
      host.latest = 'v1.1.0-rc.1'
      await expect(sync()).rejects.toThrow(failed(/latest release there is a candidate, 1\.1\.0-rc\.1/))
      expect(await promoted()).toEqual(labels.map((label) => `${label} 1.0.0`))
      expect(await sync({ version: 'v1.1.0-rc.1' })).toMatchObject({ version: '1.1.0-rc.1' })
      expect(await promoted()).toEqual(labels.map((label) => `${label} 1.1.0-rc.1`))
    })

    it('is registered and not promoted with promote=false', async () => {
      const { host, sync, promoted, versions } = await start()
      host.publish(signedRelease('1.0.0'))
      await sync({ promote: 'false' })
      expect([await versions(), await promoted()]).toEqual([['1.0.0'], []])
    })

    it('is registered and not promoted where it would move devices back, with the reason', async () => {
      const { host, sync, promoted, versions } = await start()
      host.publish(signedRelease('1.1.0', { minimumVersion: '1.0.0' }))
      expect(await sync()).toMatchObject({ promoted: labels, withheld: null })
      for (const version of ['1.0.5', '0.9.0']) host.publish(signedRelease(version))
      expect(await sync({ version: '1.0.5' })).toMatchObject({
        synced: labels,
        promoted: [],
        withheld: expect.stringContaining('svc agent rollback 1.0.5'),
      })
      expect(await sync({ version: '0.9.0' })).toMatchObject({
        withheld: expect.stringContaining('0.9.0 is below 1.0.0'),
      })
      expect(await sync({ version: '1.0.5', promote: 'false' })).toMatchObject({ withheld: null })
      expect((await versions()).sort()).toEqual(['0.9.0', '1.0.5', '1.1.0'])
      expect(await promoted()).toEqual(labels.map((label) => `${label} 1.1.0`))
    })

    it('again does not end a rollback from it; a newer version does', async () => {
      const { host, client, sync, promoted } = await start()
      for (const version of ['1.0.0', '1.1.0']) {
        host.publish(signedRelease(version))
        await sync({ version })
      }
      await client.call(api.agentVersions.rollback, { body: { version: '1.0.0' } })
      host.latest = 'v1.1.0'
      expect(await sync()).toMatchObject({
        promoted: [],
        withheld: expect.stringContaining('rolled back to 1.0.0'),
      })
      expect(await sync({ version: '1.0.0' })).toMatchObject({ promoted: labels, withheld: null })
      expect(await promoted()).toEqual(labels.map((label) => `${label} 1.0.0`))
      const { data } = await client.call(api.agentVersions.list)
      expect(data.flatMap(({ rollbackFor }) => rollbackFor).sort()).toEqual(labels)
      host.publish(signedRelease('1.2.0'))
      host.latest = 'v1.2.0'
      expect(await sync()).toMatchObject({ version: '1.2.0', promoted: labels, withheld: null })
      expect(await promoted()).toEqual(labels.map((label) => `${label} 1.2.0`))
    })

    it('leaves the offers to other platforms unchanged', async () => {
      const { host, sync, promoted } = await start()
      host.publish(signedRelease('1.0.0'))
      await sync()
      host.publish(signedRelease('1.1.0', { files: ['svc-agent-linux-amd64', 'svc-helper-linux-amd64'] }))
      await sync()
      expect(await promoted()).toEqual([
        'agent:linux/amd64 1.1.0',
        'agent:linux/arm64 1.0.0',
        'agent:windows/amd64 1.0.0',
        'helper:linux/amd64 1.1.0',
      ])
    })

    it('has only the files that are named as builds, in its manifest, and present', async () => {
      const { host, sync } = await start()
      const files = ['svc-agent-linux-amd64', 'svc-agent-linux-arm64', 'svc-viewer-linux-amd64', 'README.md']
      host.publish(signedRelease('1.0.0', { files }), {
        without: ['svc-agent-linux-arm64'],
        swapped: { 'svc-agent-darwin-arm64': Buffer.from('not in the manifest') },
      })
      expect((await sync()).synced).toEqual(['agent:linux/amd64'])
    })

    it('gains builds that come later, and is otherwise unchanged by another sync', async () => {
      const { host, client, sync } = await start()
      const release = signedRelease('1.0.0')
      host.publish(release, { without: ['svc-agent-linux-arm64'] })
      await sync()
      const show = () => client.call(api.agentVersions.show, { params: { version: '1.0.0' } })
      const before = await show()
      expect(await sync()).toMatchObject({ version: '1.0.0', synced: [labels[0], labels[2]] })
      expect(await show()).toEqual({ ...before, updatedAt: expect.any(String) })
      host.publish(release)
      expect(await sync()).toMatchObject({ version: '1.0.0', synced: labels })
      const after = await show()
      expect(after.promotedFor).toEqual(labels)
      expect([after.files[0], after.files[2]]).toEqual(before.files)
    })

    it('is audited with the version it replaces', async () => {
      const { host, service, client, sync } = await start()
      host.publish(signedRelease('1.0.0'))
      await sync()
      host.publish(signedRelease('1.1.0', { files: ['svc-agent-linux-amd64'] }))
      const news = await newEntries(service)
      await sync()
      const [entry] = await news()
      expect(entry!.details).toMatchObject({
        before: { 'agent:linux/amd64': '1.0.0' },
        after: { 'agent:linux/amd64': '1.1.0' },
      })
      const query = { platform: 'linux', arch: 'x86_64' } as const
      expect(await client.call(api.agentVersions.latest, { query })).toMatchObject({ version: '1.1.0' })
    })
  })

  describe('an untrustworthy release', () => {
    const wrong: [
      string,
      string,
      Parameters<typeof signedRelease>[1],
      Parameters<ReleaseHost['publish']>[1]?,
    ][] = [
      ['signed by another key', 'invalid_release_manifest_signature', { key: keyOf(2).privateKey }],
      [
        'with a changed manifest',
        'invalid_release_manifest_signature',
        {},
        {
          swapped: {
            'release-manifest.json': signedRelease('1.0.0', { files: ['svc-agent-linux-arm64'] }).manifest,
          },
        },
      ],
      ['without a manifest', 'signed_release_manifest_required', {}, { without: ['release-manifest.json'] }],
      [
        'without a signature',
        'signed_release_manifest_required',
        {},
        { without: ['release-manifest.json.sig'] },
      ],
      ['for another version', 'release_manifest_metadata_mismatch', { release: 'v1.0.1' }],
      ['with an unknown schema', 'invalid_release_manifest_json', { schemaVersion: 2 as 1 }],
      ['with an impossible minFrom', 'invalid_release_manifest_json', { minFrom: '1.0.0' }],
      ['without any build', 'release_manifest_metadata_mismatch', { files: ['README.md'] }],
      [
        'with a file of another size',
        'release_manifest_metadata_mismatch',
        {},
        { swapped: { 'svc-agent-linux-amd64': Buffer.from('something else') } },
      ],
    ]
    it.each(wrong)('is refused: %s', async (_, reason, release, published) => {
      const { host, sync, versions } = await start()
      host.publish(signedRelease('1.0.0', release), published)
      await expect(sync()).rejects.toThrow(refused(reason))
      expect(await versions()).toEqual([])
    })

    it('is refused without trusted keys, and with a key that only another release names', async () => {
      const none = await start({ env: { RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: '' } })
      none.host.publish(signedRelease('1.0.0'))
      await expect(none.sync()).rejects.toThrow(refused('no_trusted_keys'))
      const { host, sync } = await start()
      const next = keyOf(2)
      host.publish(signedRelease('1.0.0', { nextKeys: [{ publicKeyB64: next.trustKey.publicKeyB64 }] }))
      await sync()
      host.publish(signedRelease('1.1.0', { key: next.privateKey }))
      await expect(sync()).rejects.toThrow(refused('invalid_release_manifest_signature'))
    })

    it('is refused when it differs from the one registered under its version', async () => {
      const { host, service, sync, client } = await start()
      host.publish(signedRelease('1.0.0'))
      await sync()
      const before = await client.call(api.agentVersions.show, { params: { version: '1.0.0' } })
      host.publish(signedRelease('1.0.0', { files: { 'svc-agent-linux-amd64': Buffer.from('rebuilt') } }))
      const news = await newEntries(service)
      await expect(sync()).rejects.toThrow(expect.objectContaining({ status: 409, code: 'release_changed' }))
      expect(await client.call(api.agentVersions.show, { params: { version: '1.0.0' } })).toEqual(before)
      expect(await news()).toEqual([])
    })
  })

  describe('the release host', () => {
    it('is named when it fails, with its message', async () => {
      const { host, sync } = await start()
      await expect(sync({ version: '9.9.9' })).rejects.toThrow(
        failed(/^The release host answered 404 for the release: Not Found$/),
      )
      host.instead = (_, __, reply) => !!reply.writeHead(500).end('<html>\u0007 down')
      await expect(sync()).rejects.toThrow(failed(/answered 500 for the release$/))
      host.instead = (_, __, reply) => !!reply.end('<html>')
      await expect(sync()).rejects.toThrow(failed(/not a release/))
      await host.close()
      await expect(sync()).rejects.toThrow(failed(/could not be reached: /))
    })

    it('gets the token with API requests, and no other host does', async () => {
      const elsewhere: (string | undefined)[] = []
      const other = createServer((request, reply) => {
        elsewhere.push(request.headers.authorization)
        const { manifest, signature } = signedRelease('1.0.0')
        reply.end(request.url?.endsWith('.sig') ? signature : manifest)
      })
      const port = await listening(other)
      onTestFinished(() => void other.close())
      const { host, sync } = await start({ env: { RELEASE_API_TOKEN: 'ghp_secret' } })
      host.token = 'ghp_secret'
      host.publish(signedRelease('1.0.0'))
      host.instead = (path, _, reply) => {
        if (!path.startsWith('/files/')) return false
        reply.writeHead(307, { location: `http://127.0.0.1:${port}${path}` }).end()
        return true
      }
      expect(await sync()).toMatchObject({ version: '1.0.0' })
      expect(elsewhere).toEqual([undefined, undefined])
      const api = host.asked.filter(({ path }) => path.startsWith('/repos/'))
      expect(api.map(({ authorization }) => authorization)).toEqual(Array(3).fill('Bearer ghp_secret'))
      expect(api.slice(1).map(({ accept }) => accept)).toEqual(Array(2).fill('application/octet-stream'))
    })

    it('is asked for files as browsers get them when there is no token', async () => {
      const { host, sync } = await start()
      host.publish(signedRelease('1.0.0'))
      await sync()
      expect(host.asked.map(({ path }) => path)).toEqual([
        '/repos/example/svc/releases/latest',
        '/files/v1.0.0/release-manifest.json',
        '/files/v1.0.0/release-manifest.json.sig',
      ])
      expect(host.asked.every(({ authorization }) => authorization === undefined)).toBe(true)
    })

    it('cannot redirect the service to internal addresses, or endlessly', async () => {
      const { host, sync } = await start()
      host.publish(signedRelease('1.0.0'))
      const asked: string[] = []
      const leading = (location: string) => {
        host.instead = (path, _, reply) => {
          if (!path.startsWith('/files/')) return false
          asked.push(path)
          reply.writeHead(302, { location }).end()
          return true
        }
      }
      for (const inside of [
        'http://10.0.0.1/',
        'https://169.254.169.254/latest/meta-data',
        'http://[::1]/',
      ]) {
        leading(inside)
        await expect(sync()).rejects.toThrow(failed(/could not be reached: .* is refused/))
      }
      for (const nowhere of ['file:///etc/passwd', 'javascript:1', 'http://a:b@127.0.0.1/']) {
        leading(nowhere)
        await expect(sync()).rejects.toThrow(failed(/an invalid address/))
      }
      asked.length = 0
      leading('/files/again')
      await expect(sync()).rejects.toThrow(failed(/redirects more than 5 times/))
      expect(asked).toHaveLength(6)
    })

    it('cannot send devices to an invalid address', async () => {
      const { host, sync, versions } = await start()
      host.publish(signedRelease('1.0.0'))
      for (const nowhere of [
        'javascript:alert(1)',
        'ftp://a/b',
        'http://u:p@example.com/',
        `http://a/${'x'.repeat(2000)}`,
      ]) {
        host.instead = (path, _, reply) => {
          if (!path.endsWith('/latest')) return false
          const { api: at, url } = host
          const assets = ['release-manifest.json', 'release-manifest.json.sig', 'svc-agent-linux-amd64'].map(
            (name) => ({
              name,
              url: `${at}/x`,
              browser_download_url: name.startsWith('svc') ? nowhere : `${url}/files/v1.0.0/${name}`,
            }),
          )
          reply.end(JSON.stringify({ tag_name: 'v1.0.0', assets }))
          return true
        }
        await expect(sync()).rejects.toThrow(failed(/an invalid address/))
      }
      expect(await versions()).toEqual([])
    })

    it.each([
      ['its answer', '/repos/example/svc/releases/latest', 5 << 20],
      ['the manifest', '/files/v1.0.0/release-manifest.json', 2 << 20],
      ['the signature', '/files/v1.0.0/release-manifest.json.sig', 5000],
    ])('is read up to a limit: %s', async (_, at, size) => {
      const { host, sync } = await start()
      host.publish(signedRelease('1.0.0'))
      host.instead = (path, _, reply) => {
        if (path !== at) return false
        reply.end(Buffer.alloc(size, ' '))
        return true
      }
      await expect(sync()).rejects.toThrow(failed(/is too large/))
    })

    it('is unknown to the service unless configured', async () => {
      const service = await startService(open, { env: { OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' } })
      const { sync } = await actionsOn(service)
      await expect(sync()).rejects.toThrow(
        expect.objectContaining({
          status: 501,
          code: 'releases_not_configured',
          message: expect.stringContaining('RELEASE_API_URL'),
        }),
      )
    })
  })

  describe('concurrent syncs', () => {
    it('by two replicas have the result of one after the other', async () => {
      const { host, service, sync, promoted, versions } = await start()
      const replica = service.databaseUrl
        ? await serviceOn(service, { env: { ...host.env(), SVC_DATA_DIR: service.dataDir } })
        : service
      const other = await actionsOn(replica)
      for (const version of ['1.0.0', '1.1.0', '1.2.0']) host.publish(signedRelease(version))
      const versionsToSync = ['1.0.0', '1.1.0', '1.2.0', '1.0.0', '1.1.0', '1.2.0', '1.0.0', '1.2.0']
      const synced = await Promise.all(
        versionsToSync.map((version, i) => (i % 2 === 0 ? sync : other.sync)({ version })),
      )
      expect(synced.map(({ version }) => version)).toEqual(versionsToSync)
      expect((await versions()).sort()).toEqual(['1.0.0', '1.1.0', '1.2.0'])
      const offered = await promoted()
      expect(offered).toHaveLength(3)
      expect(new Set(offered.map((one) => one.split(' ')[1])).size).toBe(1)
    })
  })

  describe('while a rollout is in progress', () => {
    async function rollout(service: TestService, status: string, version = '1.1.0'): Promise<string> {
      const [id, now] = [newId(), new Date().toISOString()]
      const row = {
        id,
        version,
        status,
        waves: '[{"percent":10}]',
        wave: 0,
        wave_began_at: null,
        gate_minutes: 15,
        soak_minutes: 10,
        max_failure_percent: 5,
        halt_reason: null,
        created_by: null,
        created_at: now,
        updated_at: now,
        ended_at: null,
        is_current: 1,
        accepted_failures: 0,
      }
      await service.storage.write((tx) => tx.insertInto('agent_rollouts').values(row).execute())
      return id
    }
    const current = async (service: TestService) =>
      (
        await service.storage.read
          .selectFrom('agent_rollouts')
          .select('id')
          .where('is_current', '=', 1)
          .execute()
      ).length

    it.each(['preparing', 'running', 'halted'])('that is %s no other version is promoted', async (status) => {
      const { host, service, client, sync, promoted, versions } = await start()
      host.publish(signedRelease('1.0.0', { files: ['svc-agent-linux-amd64', 'svc-helper-linux-amd64'] }))
      await sync()
      await rollout(service, status)
      host.publish(signedRelease('1.2.0', { files: ['svc-agent-linux-amd64', 'svc-helper-linux-amd64'] }))
      const busy = expect.objectContaining({ status: 409, code: 'rollout_in_progress' })
      await expect(sync()).rejects.toThrow(busy)
      expect(await versions()).toEqual(['1.0.0'])
      await sync({ promote: 'false' })
      await expect(client.call(api.agentVersions.promote, { body: { version: '1.2.0' } })).rejects.toThrow(
        busy,
      )
      expect(await promoted()).toEqual(['agent:linux/amd64 1.0.0', 'helper:linux/amd64 1.0.0'])
      // What is already promoted is no promotion, and a helper is in no rollout.
      await sync({ version: '1.0.0' })
      const body = { version: '1.2.0', component: 'helper' } as const
      expect(await client.call(api.agentVersions.promote, { body })).toEqual({
        promoted: ['helper:linux/amd64'],
        demoted: ['helper:linux/amd64@1.0.0'],
      })
      expect(await current(service)).toBe(1)
    })

    it.each(['completed', 'aborted', 'rolled_back'])(
      'a promotion ends the hold of one that is %s',
      async (status) => {
        const { host, service, client, sync } = await start()
        host.publish(signedRelease('1.0.0'))
        await sync({ promote: 'false' })
        await rollout(service, status)
        await client.call(api.agentVersions.promote, { body: { version: '1.0.0' } })
        expect(await current(service)).toBe(0)
      },
    )
  })
})
