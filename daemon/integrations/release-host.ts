import { z } from 'zod'
import { type ReleaseAsset, ReleaseFailure, type ReleaseSource } from '../../src/agents/versions/ports.ts'
import { parseJson } from '../../src/core/json.ts'
import { type Outbound, OutboundFailure, type OutboundReply } from '../../src/core/outbound.ts'
import { safeParse } from '../../src/core/schema.ts'
import { version as ownVersion } from '../../src/version.ts'
import type { ReleaseSettings } from './release-settings.ts'

type Api = NonNullable<ReleaseSettings['api']>

/** Time limit for reading a release: the caller waits. */
const milliseconds = 25_000
const maxBytes = { answer: 4 << 20, manifest: 1 << 20, signature: 4096 }
const maxRedirects = 5
const maxQuoted = 200
const longestAddress = 2000

const Asset = z.object({
  name: z.string(),
  /** The address at the API, which requires the token. */
  url: z.string(),
  browser_download_url: z.string(),
  size: z.int().optional(),
})
type Asset = z.output<typeof Asset>
const Release = z.object({
  tag_name: z.string().min(1).max(100),
  body: z.string().nullish(),
  assets: z.array(Asset).max(2000),
})

/** A repository with a GitHub-compatible API, read with the guarded client. */
export function releaseHost(
  api: Api,
  outbound: Outbound,
  { patience = milliseconds }: { patience?: number } = {},
): ReleaseSource {
  return {
    async find(version) {
      const reader = new Reader(api, outbound, patience)
      const release = await reader.release(version)
      const asset = (name: string) => release.assets.find((one) => one.name === name)
      const [manifest, signature] = [asset(manifestName), asset(signatureName)]
      return {
        tag: release.tag_name,
        notes: release.body ?? null,
        manifest: manifest && (await reader.asset(manifest, maxBytes.manifest)),
        signature: signature && (await reader.asset(signature, maxBytes.signature)).toString('latin1'),
        async file(name) {
          const found = asset(name)
          return found && fileOf(found)
        },
      }
    },
  }
}

/** The address that agents are redirected to. */
const fileOf = ({ browser_download_url: url, size }: Asset): ReleaseAsset => ({
  url: addressIn(url).href,
  size,
})

/** @throws ReleaseFailure when it is not a usable address */
function addressIn(text: string, from?: string): URL {
  const url = URL.parse(text, from)
  const isPlain = url && ['http:', 'https:'].includes(url.protocol) && !url.username && !url.password
  if (isPlain && url.href.length <= longestAddress) return url
  throw failure('it points to an invalid address')
}

export const manifestName = 'release-manifest.json'
export const signatureName = 'release-manifest.json.sig'

/** Reads one release, within one time limit. */
class Reader {
  readonly #api: Api
  readonly #outbound: Outbound
  readonly #end: number

  constructor(api: Api, outbound: Outbound, patience: number) {
    this.#api = api
    this.#outbound = outbound
    this.#end = performance.now() + patience
  }

  async release(version: string | undefined): Promise<z.output<typeof Release>> {
    const paths =
      version === undefined
        ? ['/releases/latest']
        : [`/releases/tags/v${version}`, `/releases/tags/${version}`]
    const accept = 'application/vnd.github+json'
    let reply: OutboundReply | undefined
    // Tags usually begin with a v.
    for (const path of paths) {
      reply = await this.#follow(`${this.#api.url}${path}`, accept, maxBytes.answer)
      if (reply.status !== 404) break
    }
    const read = safeParse(Release, parseJson(bodyOf(reply!, 'the release')))
    if (!read.success) throw failure('its answer is not a release, as the API of GitHub has them')
    return read.data
  }

  /** With a token from the API address, which accepts it; otherwise from the browser address. */
  async asset({ name, url, browser_download_url: address }: Asset, max: number): Promise<Buffer> {
    const from = this.#api.token === undefined ? address : url
    return bodyOf(await this.#follow(from, 'application/octet-stream', max), name)
  }

  async #follow(from: string, accept: string, maxBody: number): Promise<OutboundReply> {
    let at = from
    for (let hops = 0; ; hops += 1) {
      const reply = await this.#send(at, accept, maxBody)
      const { location } = reply.headers
      if (![301, 302, 303, 307, 308].includes(reply.status) || location === undefined) return reply
      if (hops === maxRedirects) throw failure(`it redirects more than ${maxRedirects} times`)
      at = addressIn(location, at).href
    }
  }

  async #send(address: string, accept: string, maxBody: number): Promise<OutboundReply> {
    const url = addressIn(address)
    const { token, url: base } = this.#api
    // Files are usually on another host, which must not get the token.
    const isAtHome = url.origin === new URL(base).origin
    const headers = {
      accept,
      'user-agent': `svc/${ownVersion}`,
      ...(isAtHome && token !== undefined && { authorization: `Bearer ${token}` }),
    }
    const left = Math.max(1, Math.round(this.#end - performance.now()))
    try {
      return await this.#outbound.send({
        method: 'GET',
        url: url.href,
        headers,
        milliseconds: left,
        maxBody,
      })
    } catch (error) {
      if (!(error instanceof OutboundFailure)) throw error
      throw new ReleaseFailure('host', `The release host could not be reached: ${error.message}`, {
        hint: hints[error.kind],
        cause: error,
      })
    }
  }
}

const hints: Record<OutboundFailure['kind'], string> = {
  blocked: 'use the public address of the host; OUTBOUND_ALLOW_CIDRS allows private ranges',
  dns: 'the name has no address: is RELEASE_API_URL spelled right?',
  refused: 'nothing listens there: is RELEASE_API_URL spelled right, port included?',
  tls: 'its certificate was not accepted: has it expired, and does it name this host? OUTBOUND_CA_FILE adds authorities',
  timeout: 'it took too long: try again',
  broken: 'the answer was incomplete: try again',
}

const failure = (what: string, hint?: string) =>
  new ReleaseFailure('host', `The release host did not return it: ${what}`, {
    ...(hint !== undefined && { hint }),
  })

/** @throws ReleaseFailure with the answer of the host, when it is an error */
function bodyOf({ status, isWhole, body }: OutboundReply, what: string): Buffer {
  if (status !== 200) {
    const said = safeParse(z.object({ message: z.string() }), parseJson(body)).data?.message
    const words = said === undefined ? '' : `: ${plain(said)}`
    throw new ReleaseFailure('host', `The release host answered ${status} for ${what}${words}`, {
      ...(statusHints[status] !== undefined && { hint: statusHints[status] }),
    })
  }
  if (!isWhole) throw failure(`${what} is too large`)
  return body
}

const statusHints: Readonly<Record<number, string>> = {
  401: 'RELEASE_API_TOKEN was not accepted: has it expired?',
  403: 'RELEASE_API_TOKEN may not read it, or the host limits the service for now',
  404: 'there is no such release; or the repository is private, and RELEASE_API_TOKEN may not read it',
  429: 'the host limits the service for now: a RELEASE_API_TOKEN raises its limit',
}

/** Untrusted text, on one line. */
const plain = (text: string): string => text.replace(/[^\x20-\x7e\u00a0-\uffff]+/g, ' ').slice(0, maxQuoted)
