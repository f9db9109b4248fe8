import { generateKeyPairSync, hash, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { parseTrustKey, platformOf } from '../../../src/agents/versions/manifest.ts'
import {
  type Answer,
  agreeable,
  beat,
  enrolled,
  type Received,
  standIn,
  watchdogAuthToken,
} from '../stand-in.ts'

/** A publisher of releases, who signs manifests with its own key. */
export function publisher() {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const trustKey = parseTrustKey(publicKey.export({ type: 'spki', format: 'pem' }).toString())
  const seal = (manifest: string): string => sign(null, Buffer.from(manifest), privateKey).toString('base64')
  return { trustKey, seal }
}
export type Publisher = ReturnType<typeof publisher>

const suffix = `${process.platform === 'darwin' ? 'darwin' : process.platform}-${process.arch}`
export const assetName = `svc-agent-${suffix}`

export type Info = {
  version: string
  url: string
  checksum: string
  size: number
  manifest: string
  manifestSignature: string
  signingKeyId: string
}

/** The download info of the service for a version whose file has this content. */
export function infoOf(
  by: Publisher,
  version: string,
  content: Buffer,
  { url = `/files/${version}`, manifest = {} as object } = {},
): Info {
  const checksum = hash('sha256', content, 'hex')
  const { length: size } = content
  const text = JSON.stringify({
    schemaVersion: 1,
    release: `v${version}`,
    assets: [{ name: assetName, sha256: checksum, size }],
    ...manifest,
  })
  const manifestSignature = by.seal(text)
  return { version, url, checksum, size, manifest: text, manifestSignature, signingKeyId: by.trustKey.keyId }
}

/** The file, or the requested range of it. */
export function fileAnswer(content: Buffer, { headers }: Pick<Received, 'headers'>): Answer {
  const [, from] = /^bytes=(\d+)-$/.exec(headers.range ?? '') ?? []
  if (from === undefined) return { status: 200, bytes: content }
  if (Number(from) >= content.length) return { status: 416, body: {} }
  const range = `bytes ${from}-${content.length - 1}/${content.length}`
  return { status: 206, bytes: content.subarray(Number(from)), headers: { 'content-range': range } }
}

export type Hosting = {
  /** The files, by version. */
  files: Record<string, string | Buffer>
  by?: Publisher
  /** The offered version; agents of that version get no offer. */
  target?: string | undefined
  /** Whether the offer is marked as a rollback. */
  rollback?: boolean
  info?: (version: string, content: Buffer) => Info
  answer?: (request: Received, before: Received[]) => Answer | undefined
}

/** A service that offers a version, and serves its file. `target` may be changed while it runs. */
export async function releaseHost(hosting: Hosting) {
  const by = hosting.by ?? publisher()
  const contentOf = (version: string): Buffer => {
    const { [version]: file } = hosting.files
    return typeof file === 'string' ? readFileSync(file) : (file ?? Buffer.alloc(0))
  }
  const service = await standIn((request, before) => {
    const special = hosting.answer?.(request, before)
    if (special) return special
    const { path, body } = request
    if (path.endsWith('/enroll')) {
      const reply = (enrolled as { body: object }).body
      return { status: 201, body: { ...reply, watchdogAuthToken, manifestTrustKeys: [by.trustKey] } }
    }
    if (path.endsWith('/heartbeat')) {
      const wants = body.role === 'agent' && body.autoUpdate !== false && body.agentVersion !== hosting.target
      const upgradeTo = wants ? (hosting.target ?? null) : null
      return {
        status: 200,
        body: {
          ...(beat as { body: object }).body,
          upgradeTo,
          rollback: hosting.rollback,
          manifestTrustKeys: [by.trustKey],
        },
      }
    }
    const [, asked] = /^\/api\/v1\/agent-versions\/([^/]+)\/download\?/.exec(path) ?? []
    if (asked !== undefined) {
      const query = new URL(path, service.url).searchParams
      if (!platformOf(query.get('platform') ?? '') || !hosting.files[asked]) {
        return { status: 404, body: { error: 'Not found', code: 'not_found' } }
      }
      return { status: 200, body: (hosting.info ?? ((v, c) => infoOf(by, v, c)))(asked, contentOf(asked)) }
    }
    const [, file] = /^\/files\/([^/]+)$/.exec(path) ?? []
    if (file !== undefined) return fileAnswer(contentOf(file), request)
    if (path.endsWith('/update-status') || path.endsWith('/result'))
      return { status: 200, body: { success: true } }
    return agreeable(request)
  })
  return {
    by,
    hosting,
    url: service.url,
    received: service.received,
    count: service.count,
    /** The versions that sent heartbeats, in the order of their first one. */
    versions: (): string[] => [
      ...new Set(
        service.received.flatMap(({ path, body }) =>
          path.endsWith('/heartbeat') && body.role === 'agent' ? [String(body.agentVersion)] : [],
        ),
      ),
    ],
    lastVersion: (): string | undefined =>
      service.received
        .findLast(({ path, body }) => path.endsWith('/heartbeat') && body.role === 'agent')
        ?.body.agentVersion?.toString(),
    /** The reported update statuses. */
    statuses: () =>
      service.received.flatMap(({ path, body }) =>
        path.endsWith('/update-status')
          ? [body as { targetVersion: string; state: string; reason?: string }]
          : [],
      ),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
}
export type ReleaseHost = Awaited<ReturnType<typeof releaseHost>>
