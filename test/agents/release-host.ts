import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { onTestFinished } from 'vitest'
import { listening } from '../cli/network.ts'
import type { SignedRelease } from './signed-release.ts'

type Answer = (request: IncomingMessage, reply: ServerResponse) => void
type Asked = { path: string; accept: string | undefined; authorization: string | undefined }

/**
 * A release host on this machine that speaks as GitHub does: the API below /repos/example/svc, files below
 * /files as browsers get them. Closes when the test ends.
 */
export async function releaseHost() {
  const releases: { release: SignedRelease; files: Map<string, Buffer>; isCandidate: boolean }[] = []
  const asked: Asked[] = []
  const self = {
    url: '',
    /** Its RELEASE_API_URL. */
    api: '',
    asked,
    /** Handles a request instead, where it returns true. */
    instead: undefined as ((path: string, ...at: Parameters<Answer>) => boolean) | undefined,
    /** Where it is set, the API answers only requests that carry it. */
    token: undefined as string | undefined,
    /** The tag of the latest release; by default that of the last one that is not a candidate. */
    latest: undefined as string | undefined,
    /**
     * Replaces the release of the same tag. `without`: files it lacks; `swapped`: files with other content.
     */
    publish(
      release: SignedRelease,
      { without = [] as string[], swapped = {} as Record<string, Buffer> } = {},
    ): void {
      const signed: [string, Buffer][] = [
        ['release-manifest.json', release.manifest],
        ['release-manifest.json.sig', Buffer.from(`${release.signature}\n`)],
      ]
      const files = new Map([...release.files, ...signed, ...Object.entries(swapped)])
      for (const name of without) files.delete(name)
      const known = releases.findIndex((one) => one.release.tag === release.tag)
      if (known >= 0) releases.splice(known, 1)
      releases.push({ release, files, isCandidate: release.version.includes('-') })
    },
    env: () => ({
      RELEASE_API_URL: self.api,
      OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8',
    }),
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      await closed
    },
  }

  const describe = ({ release, files, isCandidate }: (typeof releases)[number]) => ({
    tag_name: release.tag,
    name: `svc ${release.version}`,
    body: `Notes of ${release.version}`,
    draft: false,
    prerelease: isCandidate,
    assets: [...files].map(([name, bytes]) => ({
      name,
      size: bytes.length,
      url: `${self.api}/releases/assets/${release.tag}/${name}`,
      browser_download_url: `${self.url}/files/${release.tag}/${name}`,
    })),
  })

  const answer: Answer = (request, reply) => {
    const path = request.url ?? ''
    const { accept, authorization } = request.headers
    asked.push({ path, accept, authorization })
    if (self.instead?.(path, request, reply)) return
    const json = (status: number, body: unknown) =>
      reply.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
    const none = () => json(404, { message: 'Not Found', documentation_url: 'https://docs.example.com' })
    const isAllowed = self.token === undefined || authorization === `Bearer ${self.token}`
    const send = (tag: string, name: string) => {
      const bytes = releases.find(({ release }) => release.tag === tag)?.files.get(name)
      return bytes ? reply.end(bytes) : none()
    }
    const [, tag, name] = /^\/files\/([^/]+)\/([^/]+)$/.exec(path) ?? []
    if (tag && name) return void send(tag, name)
    if (!path.startsWith('/repos/example/svc/releases') || !isAllowed) return void none()
    const rest = path.slice('/repos/example/svc/releases'.length)
    const [, assetTag, asset] = /^\/assets\/([^/]+)\/([^/]+)$/.exec(rest) ?? []
    if (assetTag && asset) {
      // As GitHub does, which stores files on another host.
      if (accept !== 'application/octet-stream') return void json(200, { name: asset })
      return void reply.writeHead(302, { location: `${self.url}/files/${assetTag}/${asset}` }).end()
    }
    const found =
      rest === '/latest'
        ? (releases.find(({ release }) => release.tag === self.latest) ??
          releases.findLast(({ isCandidate }) => !isCandidate))
        : releases.find(({ release }) => rest === `/tags/${release.tag}`)
    return void (found ? json(200, describe(found)) : none())
  }
  const server = createServer(answer)
  self.url = `http://127.0.0.1:${await listening(server)}`
  self.api = `${self.url}/repos/example/svc`
  try {
    onTestFinished(() => self.close())
  } catch {
    // Opened from beforeAll: the caller closes it.
  }
  return self
}
export type ReleaseHost = Awaited<ReturnType<typeof releaseHost>>
