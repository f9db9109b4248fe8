import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readlinkSync } from 'node:fs'
import { mkdir, open as openFile, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { Pool } from 'undici'
import { describe, expect, it, onTestFinished } from 'vitest'
import { api } from '../../../src/api.ts'
import { until } from '../../daemon/process.ts'
import { send } from '../../daemon/request.ts'
import { inTurn, temporaryFolder } from '../../databases.ts'
import { startService } from '../../harness.ts'
import { systemToken } from '../../world.ts'
import { putRelease } from '../directory.ts'
import { sha256, signedRelease } from '../signed-release.ts'

const linux = 'svc-agent-linux-amd64'
const path = '/api/v1/agents/download'

inTurn((open) => {
  async function start(env: Record<string, string> = {}) {
    const directory = await temporaryFolder()
    const local = { BINARY_SOURCE: 'local', AGENT_BINARY_DIR: directory, OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8' }
    const service = await startService(open, { env: { ...local, ...env } })
    const client = service.client(await systemToken(service))
    const pool = new Pool(service.url, { connections: 8 })
    onTestFinished(() => pool.destroy())
    const get = async (at: string, headers: Record<string, string> = {}, method: 'GET' | 'HEAD' = 'GET') => {
      const reply = await pool.request({ method, path: `${path}${at}`, headers })
      const body = Buffer.from(await reply.body.arrayBuffer())
      return { status: reply.statusCode, headers: reply.headers, body }
    }
    const sync = (query: { version?: string; promote?: 'true' | 'false' } = {}) =>
      client.call(api.agentVersions.sync, { query })
    return { directory, service, client, get, sync }
  }
  const notFound = { status: 404 }

  describe('releases in a directory', () => {
    it('are registered from there: the newest stable one, or the named one', async () => {
      const { directory, client, sync } = await start()
      await expect(sync()).rejects.toThrow(
        expect.objectContaining({ status: 404, message: 'There is no stable release in AGENT_BINARY_DIR' }),
      )
      for (const version of ['1.9.0', '1.10.0', '2.0.0-rc.1'])
        await putRelease(directory, signedRelease(version))
      await mkdir(join(directory, '3.0.0'))
      await mkdir(join(directory, 'nonsense'))
      expect(await sync()).toMatchObject({ version: '1.10.0' })
      expect(await sync({ version: 'v2.0.0-rc.1', promote: 'false' })).toMatchObject({
        version: '2.0.0-rc.1',
      })
      for (const version of ['3.0.0', '1.0.0']) {
        await expect(sync({ version })).rejects.toThrow(expect.objectContaining({ status: 404 }))
      }
      const query = { platform: 'linux', arch: 'amd64' } as const
      const params = { version: '1.10.0' }
      const { url } = await client.call(api.agentVersions.info, { params, query })
      expect(new URL(url).pathname).toBe(`${path}/agent/linux/amd64`)
      const reply = await fetch(url)
      expect(await reply.text()).toBe(`${linux} 1.10.0\n`)
    })

    it('count only with their files present, and with a signed manifest of that release', async () => {
      const { directory, sync } = await start()
      const release = signedRelease('1.0.0')
      await putRelease(directory, release)
      await unlink(join(directory, '1.0.0', 'svc-agent-linux-arm64'))
      expect((await sync()).synced).toEqual(['agent:linux/amd64', 'agent:windows/amd64'])
      await putRelease(directory, release)
      await rename(join(directory, '1.0.0'), join(directory, '1.5.0'))
      const refused = (reason: string) => expect.objectContaining({ status: 422, details: { reason } })
      await expect(sync()).rejects.toThrow(refused('release_manifest_metadata_mismatch'))
      await writeFile(join(directory, '1.5.0', 'release-manifest.json.sig'), 'AAAA')
      await expect(sync()).rejects.toThrow(refused('invalid_release_manifest_signature'))
      await unlink(join(directory, '1.5.0', 'release-manifest.json.sig'))
      await expect(sync()).rejects.toThrow(refused('signed_release_manifest_required'))
      await writeFile(join(directory, '1.5.0', 'release-manifest.json'), Buffer.alloc(2 << 20, ' '))
      await expect(sync()).rejects.toThrow(expect.objectContaining({ status: 502 }))
    })
  })

  describe('a release file', () => {
    it('is that of the promoted or the named version, under any platform alias, for anybody', async () => {
      const { directory, sync, get } = await start()
      for (const version of ['1.0.0', '1.1.0']) {
        await putRelease(directory, signedRelease(version))
        await sync({ promote: version === '1.0.0' ? 'true' : 'false' })
      }
      for (const at of ['/linux/amd64', '/linux/x86_64', '/agent/linux/x64', '/agent/Linux/AMD64']) {
        expect((await get(at)).body.toString()).toBe(`${linux} 1.0.0\n`)
        expect((await get(`${at}?version=1.1.0`)).body.toString()).toBe(`${linux} 1.1.0\n`)
      }
      const checksum = sha256(Buffer.from(`${linux} 1.0.0\n`))
      expect((await get('/linux/amd64', {}, 'HEAD')).headers).toMatchObject({
        etag: `"${checksum}"`,
        'content-length': String(`${linux} 1.0.0\n`.length),
        'accept-ranges': 'bytes',
      })
      expect(await get('/linux/amd64', { 'if-none-match': `"${checksum}"` })).toMatchObject({ status: 304 })
      for (const none of ['/darwin/arm64', '/helper/linux/amd64', '/linux/amd64?version=9.9.9']) {
        expect(await get(none)).toMatchObject(notFound)
      }
    })

    it.each([
      ['/plan9/amd64', 'Invalid OS', ['params.os']],
      ['/linux/riscv', 'Invalid architecture', ['params.arch']],
      ['/plan9/riscv', 'Invalid OS', ['params.os', 'params.arch']],
      ['/constructor/__proto__', 'Invalid OS', ['params.os', 'params.arch']],
      ['/viewer/linux/amd64', 'Invalid component', ['params.component']],
    ])('requested as %s is refused: %s', async (at, error, paths) => {
      const { service } = await start()
      const { status, body } = await send(service.url, 'GET', `${path}${at}`)
      expect([status, body]).toEqual([
        400,
        {
          error,
          code: 'invalid_request',
          requestId: expect.any(String),
          details: paths.map((one) => ({ path: one, message: expect.stringMatching(/^must be one of /) })),
        },
      ])
    })

    it('that is missing gets a 404 with the reason', async () => {
      const { service } = await start()
      const { status, body } = await send(service.url, 'GET', `${path}/linux/amd64`)
      expect([status, body.error, body.details]).toEqual([
        404,
        'Binary not found',
        { message: 'The offered version has no agent for linux/amd64' },
      ])
    })

    it('is served only in its registered size, from its folder or from the directory above', async () => {
      const { directory, sync, get } = await start()
      const release = signedRelease('1.0.0')
      await putRelease(directory, release)
      await sync()
      const [within, beside] = [join(directory, '1.0.0', linux), join(directory, linux)]
      await writeFile(within, 'another length')
      expect(await get('/linux/amd64')).toMatchObject(notFound)
      await writeFile(beside, release.files.get(linux)!)
      expect((await get('/linux/amd64')).body.equals(release.files.get(linux)!)).toBe(true)
      await unlink(within)
      expect(await get('/linux/amd64')).toMatchObject({ status: 200 })
      await unlink(beside)
      expect(await get('/linux/amd64')).toMatchObject(notFound)
    })

    it('is not served through a link out of the directory, and only when it is a regular file', async () => {
      const { directory, sync, get } = await start()
      const release = signedRelease('1.0.0')
      await putRelease(directory, release)
      await sync()
      const within = join(directory, '1.0.0', linux)
      const bytes = release.files.get(linux)!
      const outside = join(await temporaryFolder(), 'secret')
      await writeFile(outside, bytes)
      const places: [string, number, () => Promise<unknown>][] = [
        ['a link to a file elsewhere', 404, () => symlink(outside, within)],
        ['a link around', 404, () => symlink(linux, within)],
        ['a folder', 404, () => mkdir(within)],
        ['a pipe', 404, async () => execFileSync('mkfifo', [within])],
        [
          'a link within the directory',
          200,
          async () => {
            await writeFile(join(directory, 'kept'), bytes)
            await symlink('../kept', within)
          },
        ],
      ]
      for (const [what, status, make] of places) {
        await rm(within, { recursive: true })
        await make()
        expect([what, (await get('/linux/amd64')).status]).toEqual([what, status])
      }
      // The folder itself as well.
      await rm(join(directory, '1.0.0'), { recursive: true })
      await symlink(join(outside, '..'), join(directory, '1.0.0'))
      await writeFile(join(outside, '..', linux), bytes)
      expect(await get('/linux/amd64')).toMatchObject(notFound)
    })

    it('is served in every requested range', async () => {
      const { directory, sync, get } = await start()
      // More than one read from the disk.
      const bytes = randomBytes(700_001)
      await putRelease(directory, signedRelease('1.0.0', { files: { [linux]: bytes } }))
      await sync()
      const place = fc.integer({ min: 0, max: bytes.length - 1 })
      await fc.assert(
        fc.asyncProperty(place, place, async (one, other) => {
          const [from, to] = [Math.min(one, other), Math.max(one, other)]
          const { status, body } = await get('/linux/amd64', { range: `bytes=${from}-${to}` })
          expect([status, body.equals(bytes.subarray(from, to + 1))]).toEqual([206, true])
        }),
        { numRuns: 60 },
      )
      expect((await get('/linux/amd64')).body.equals(bytes)).toBe(true)
    })
  })

  // Only there open files are visible.
  describe.runIf(existsSync('/proc/self/fd'))('a large file', () => {
    const size = 512 << 20
    async function large() {
      const all = await start()
      const assets = [{ name: linux, sha256: 'a'.repeat(64), size }]
      await putRelease(all.directory, signedRelease('1.0.0', { files: [linux], assets }))
      const place = join(all.directory, '1.0.0', linux)
      const file = await openFile(place, 'w')
      await file.truncate(size)
      await file.close()
      await all.sync()
      const ask = () => {
        const socket = connect(Number(new URL(all.service.url).port), '127.0.0.1').on('error', () => {})
        socket.pause()
        socket.write(`GET ${path}/linux/amd64 HTTP/1.1\r\nhost: a\r\n\r\n`)
        return socket
      }
      return { ...all, place, ask }
    }
    const openFiles = (place: string): number =>
      readdirSync('/proc/self/fd').filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`) === place
        } catch {
          return false
        }
      }).length

    it('is not read into memory for slow clients, and is closed when they leave', async () => {
      const { ask, place } = await large()
      const before = process.memoryUsage().arrayBuffers
      const sockets = Array.from({ length: 8 }, ask)
      await until(() => openFiles(place) === 8)
      await sleep(500)
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 << 20)
      for (const socket of sockets) socket.destroy()
      await until(() => openFiles(place) === 0)
    })

    it('delays no other request while it is sent', async () => {
      const { ask, service } = await large()
      const sockets = Array.from({ length: 4 }, ask)
      let taken = 0
      for (const socket of sockets) {
        socket.on('data', (piece) => {
          taken += piece.length
        })
        socket.resume()
      }
      await until(() => taken > 0)
      const waits: number[] = []
      for (let i = 0; i < 20; i += 1) {
        const begun = performance.now()
        await send(service.url, 'GET', '/health')
        waits.push(performance.now() - begun)
      }
      for (const socket of sockets) socket.destroy()
      waits.sort((a, b) => a - b)
      expect(waits[10]).toBeLessThan(250)
    })
  })
})
