import { describe, expect, it, onTestFinished } from 'vitest'
import { guardedClient } from '../../../daemon/integrations/guarded-client.ts'
import { releaseHost as portTo } from '../../../daemon/integrations/release-host.ts'
import { type ReleaseHost, releaseHost } from '../release-host.ts'
import { signedRelease } from '../signed-release.ts'

const patience = 400

async function start() {
  const host = await releaseHost()
  host.publish(signedRelease('1.0.0'))
  const outbound = guardedClient({ allowed: ['127.0.0.0/8'], ca: undefined })
  onTestFinished(() => outbound.close())
  return { host, releases: portTo({ url: host.api, token: undefined }, outbound, { patience }) }
}

const slowly: Record<string, NonNullable<ReleaseHost['instead']>> = {
  'never answers': () => true,
  'sends one byte at a time': (_, __, reply) => {
    const drop = setInterval(() => reply.write(' '), 20)
    reply.on('close', () => clearInterval(drop))
    return true
  },
  'delays each redirect': (path, _, reply) => {
    setTimeout(() => reply.writeHead(302, { location: `${path}x` }).end(), patience / 4)
    return true
  },
  'delays only the manifest': (path, _, reply) => {
    if (!path.endsWith('.json')) return false
    reply.flushHeaders()
    return true
  },
}

describe('a release host that', () => {
  it.each(Object.keys(slowly))('%s is waited for no longer than a fast one', async (name) => {
    const { host, releases } = await start()
    host.instead = slowly[name]
    const begun = performance.now()
    await expect(releases.find(undefined)).rejects.toThrow(
      expect.objectContaining({
        name: 'ReleaseFailure',
        kind: 'host',
        message: expect.stringMatching(/^The release host could not be reached: Timeout after \d+ms$/),
        hint: 'it took too long: try again',
      }),
    )
    expect(performance.now() - begun).toBeLessThan(patience * 4)
  })

  it('is fast is read', async () => {
    const { releases } = await start()
    const { tag, manifest, signature, file } = await releases.find(undefined)
    expect([tag, manifest?.toString(), signature?.trim()]).toEqual([
      'v1.0.0',
      signedRelease('1.0.0').manifest.toString(),
      signedRelease('1.0.0').signature,
    ])
    expect(await file('svc-agent-linux-amd64')).toMatchObject({ size: 28 })
    expect(await file('nothing')).toBeUndefined()
  })
})
