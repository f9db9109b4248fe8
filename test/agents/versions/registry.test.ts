import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import type { Client } from '../../../src/core/client.ts'
import { onEveryDatabase } from '../../databases.ts'
import { serviceOn, startService } from '../../harness.ts'
import { newEntries } from '../../laws/audited.ts'
import { buildWorld, systemToken } from '../../world.ts'
import { releaseHost } from '../release-host.ts'
import { keyOf, sha256, signedRelease } from '../signed-release.ts'

const problem = (status: number, code: string, more: object = {}) =>
  expect.objectContaining({ status, code, ...more })

onEveryDatabase((_, open) => {
  async function start(env: Record<string, string> = {}) {
    const host = await releaseHost()
    const service = await startService(open, { env: { ...host.env(), ...env } })
    const client = service.client(await systemToken(service))
    const register = async (version: string, more: Parameters<typeof signedRelease>[1] = {}) => {
      const release = signedRelease(version, more)
      host.publish(release)
      await client.call(api.agentVersions.sync, { query: { version, promote: 'false' } })
      return release
    }
    const promote = (version: string, component?: 'agent' | 'helper') =>
      client.call(api.agentVersions.promote, { body: { version, ...(component && { component }) } })
    return { host, service, client, register, promote }
  }
  const offered = async (
    client: Client,
    platform: 'linux' | 'darwin' | 'windows',
    arch: 'amd64' | 'arm64' | 'x64',
  ) => (await client.call(api.agentVersions.latest, { query: { platform, arch } })).version

  describe('the offered version', () => {
    it('is the promoted one, per platform and component', async () => {
      const { client, register, promote, service } = await start()
      await register('1.0.0', {
        files: ['svc-agent-linux-amd64', 'svc-agent-darwin-arm64', 'svc-helper-linux-amd64'],
      })
      await register('1.1.0', { files: ['svc-agent-linux-amd64', 'svc-helper-linux-amd64'] })
      expect(await promote('1.0.0')).toEqual({
        promoted: ['agent:darwin/arm64', 'agent:linux/amd64', 'helper:linux/amd64'],
        demoted: [],
      })
      const news = await newEntries(service)
      expect(await promote('1.1.0', 'agent')).toEqual({
        promoted: ['agent:linux/amd64'],
        demoted: ['agent:linux/amd64@1.0.0'],
      })
      expect(await news()).toEqual([
        expect.objectContaining({
          action: 'agent.version.promote',
          details: {
            rawResourceId: '1.1.0',
            before: { 'agent:linux/amd64': '1.0.0' },
            after: { 'agent:linux/amd64': '1.1.0' },
          },
        }),
      ])
      const anybody = service.client()
      expect(await offered(anybody, 'linux', 'amd64')).toBe('1.1.0')
      expect(await offered(anybody, 'linux', 'x64')).toBe('1.1.0')
      expect(await offered(anybody, 'darwin', 'arm64')).toBe('1.0.0')
      const helper = { platform: 'linux', arch: 'x64', component: 'helper' } as const
      expect(await anybody.call(api.agentVersions.latest, { query: helper })).toMatchObject({
        version: '1.0.0',
      })
      await expect(offered(anybody, 'windows', 'amd64')).rejects.toThrow(
        problem(404, 'not_found', {
          message: 'No version found for the specified platform and architecture',
        }),
      )
      const { data } = await client.call(api.agentVersions.list)
      expect(data.map(({ version, promotedFor }) => [version, promotedFor])).toEqual([
        ['1.1.0', ['agent:linux/amd64']],
        ['1.0.0', ['agent:darwin/arm64', 'helper:linux/amd64']],
      ])
    })

    it('is promoted again when requested again', async () => {
      const { client, register, promote } = await start()
      await register('1.0.0')
      const promotedAt = async () =>
        (await client.call(api.agentVersions.show, { params: { version: '1.0.0' } })).files[0]!.promotedAt!
      await promote('1.0.0')
      const before = await promotedAt()
      await new Promise((resolve) => setTimeout(resolve, 5))
      expect(await promote('1.0.0')).toMatchObject({ demoted: [] })
      expect(await promotedAt()).not.toBe(before)
    })

    it('is that of one of several concurrent promotions and rollbacks, for all platforms', async () => {
      const { host, service, client, register } = await start()
      for (const version of ['1.0.0', '1.1.0', '1.2.0', '1.3.0']) await register(version)
      const replica = service.databaseUrl ? await serviceOn(service, { env: host.env() }) : service
      const other = replica.client(await systemToken(replica))
      for (let round = 0; round < 5; round += 1) {
        const all = await Promise.allSettled(
          ['1.0.0', '1.1.0', '1.2.0', '1.3.0'].map((version, i) =>
            (i % 2 ? client : other).call(api.agentVersions[i % 2 === round % 2 ? 'promote' : 'rollback'], {
              body: { version },
            }),
          ),
        )
        const codes = all.map((one) => (one.status === 'fulfilled' ? 'done' : one.reason.code))
        expect(codes).toContain('done')
        for (const code of codes) expect(['done', 'rollback_needed', 'conflict']).toContain(code)
        const { data } = await client.call(api.agentVersions.list)
        expect(data.map(({ promotedFor }) => promotedFor.length).sort()).toEqual([0, 0, 0, 3])
      }
    })

    it('is changed only in the system scope, with MFA', async () => {
      const { service, client, register } = await start()
      const { tokens } = await buildWorld(service)
      await register('1.0.0')
      const body = { version: '1.0.0' }
      for (const token of [tokens.acme, tokens.bakery]) {
        const tenant = service.client(token)
        const denied = problem(403, 'scope_not_allowed')
        await expect(tenant.call(api.agentVersions.sync)).rejects.toThrow(denied)
        await expect(tenant.call(api.agentVersions.promote, { body })).rejects.toThrow(denied)
        await expect(tenant.call(api.agentVersions.remove, { params: body })).rejects.toThrow(denied)
        expect((await tenant.call(api.agentVersions.list)).pagination.total).toBe(1)
      }
      const weak = service.client(await systemToken(service, { mfa: false }))
      await expect(weak.call(api.agentVersions.sync)).rejects.toThrow(problem(403, 'mfa_required'))
      await expect(weak.call(api.agentVersions.promote, { body })).rejects.toThrow(
        problem(403, 'mfa_required'),
      )
      await expect(client.call(api.agentVersions.promote, { body: { version: '9.9.9' } })).rejects.toThrow(
        problem(404, 'not_found'),
      )
      const helper = { ...body, component: 'helper' } as const
      await expect(client.call(api.agentVersions.promote, { body: helper })).rejects.toThrow(
        problem(404, 'not_found'),
      )
    })
  })

  describe('the download of a version', () => {
    const params = { version: '1.0.0' }
    const query = { platform: 'linux', arch: 'amd64' } as const

    it('is the file at the host, the exact manifest and its signature', async () => {
      const { host, service, register } = await start()
      const release = await register('1.0.0')
      const bytes = release.files.get('svc-agent-linux-amd64')!
      expect(await service.client().call(api.agentVersions.info, { params, query })).toEqual({
        version: '1.0.0',
        url: `${host.url}/files/v1.0.0/svc-agent-linux-amd64`,
        checksum: sha256(bytes),
        size: bytes.length,
        manifest: release.manifest.toString(),
        manifestSignature: release.signature,
        signingKeyId: keyOf(1).trustKey.keyId,
      })
      const other = { platform: 'darwin', arch: 'arm64' } as const
      await expect(service.client().call(api.agentVersions.info, { params, query: other })).rejects.toThrow(
        problem(404, 'not_found'),
      )
      await expect(
        service.client().call(api.agentVersions.info, { params: { version: '9.9.9' }, query }),
      ).rejects.toThrow(problem(404, 'not_found'))
    })

    it('is refused once its key is no longer trusted, or when the stored data was changed', async () => {
      const { host, service, register } = await start()
      await register('1.0.0')
      await service.close()
      const untrusted = (reason: string) => problem(409, 'release_untrusted', { details: { reason } })
      const restarted = async (keys: string) => {
        const env = { ...host.env(), RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: keys }
        const again = await serviceOn(service, { env })
        return { ...again, ask: () => again.client().call(api.agentVersions.info, { params, query }) }
      }
      const others = await restarted(keyOf(2).publicKey)
      await expect(others.ask()).rejects.toThrow(untrusted('invalid_release_manifest_signature'))
      await others.close()
      const keyless = await restarted('')
      await expect(keyless.ask()).rejects.toThrow(untrusted('no_trusted_keys'))
      await keyless.close()

      const { ask, storage } = await restarted(`${keyOf(2).publicKey},${keyOf(1).publicKey}`)
      expect(await ask()).toMatchObject({ signingKeyId: keyOf(1).trustKey.keyId })
      await storage.write((tx) =>
        tx
          .updateTable('agent_builds')
          .set({ checksum: 'f'.repeat(64) })
          .execute(),
      )
      await expect(ask()).rejects.toThrow(untrusted('release_manifest_metadata_mismatch'))
      const manifest = signedRelease('1.0.1').manifest.toString()
      await storage.write((tx) => tx.updateTable('agent_releases').set({ manifest }).execute())
      await expect(ask()).rejects.toThrow(untrusted('invalid_release_manifest_signature'))
    })
  })

  describe('a deleted version', () => {
    it('is gone with its builds; a promoted one cannot be deleted', async () => {
      const { service, client, register, promote } = await start()
      for (const version of ['1.0.0', '1.1.0']) await register(version)
      await promote('1.0.0')
      const remove = (version: string) => client.call(api.agentVersions.remove, { params: { version } })
      await expect(remove('1.0.0')).rejects.toThrow(problem(409, 'release_in_use'))
      const news = await newEntries(service)
      expect(await remove('v1.1.0')).toEqual({ success: true })
      expect(await news()).toEqual([
        expect.objectContaining({
          action: 'agent.version.delete',
          details: expect.objectContaining({
            rawResourceId: '1.1.0',
            before: expect.objectContaining({ tag: 'v1.1.0' }),
          }),
        }),
      ])
      await expect(remove('1.1.0')).rejects.toThrow(problem(404, 'not_found'))
      const builds = await service.storage.read
        .selectFrom('agent_builds')
        .select('version')
        .distinct()
        .execute()
      expect(builds).toEqual([{ version: '1.0.0' }])
    })
  })

  describe('the list', () => {
    it('has pages, newest first', async () => {
      const { client, register } = await start()
      for (const version of ['1.0.0', '1.1.0', '1.2.0'])
        await register(version, { files: ['svc-agent-linux-amd64'] })
      const page = (number: string) =>
        client.call(api.agentVersions.list, { query: { page: number, limit: '2' } })
      const [first, second] = [await page('1'), await page('2')]
      expect([...first.data, ...second.data].map(({ version }) => version)).toEqual([
        '1.2.0',
        '1.1.0',
        '1.0.0',
      ])
      expect(first.pagination).toEqual({ page: 1, limit: 2, total: 3 })
      expect(first.data[0]!.files).toHaveLength(1)
    })
  })
})
