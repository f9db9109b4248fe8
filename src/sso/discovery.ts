import { z } from 'zod'
import { parseJson } from '../core/json.ts'
import { type FailureKind, type Outbound, OutboundFailure, type OutboundReply } from '../core/outbound.ts'
import { safeParse } from '../core/schema.ts'
import { urlFault } from './fields/contract.ts'
import { type DiscoveredProvider, type Endpoints, endpoints } from './rules.ts'

/** The message says what happened, the hint how to fix it. */
export class DiscoveryFailure extends Error {
  override name = 'DiscoveryFailure'
  readonly hint: string

  constructor(message: string, hint: string) {
    super(message)
    this.hint = hint
  }
}

const milliseconds = 10_000
const maxBody = 1 << 20
const maxLength = 500

/** Names of the endpoints in the discovery document (OpenID Connect Discovery 1.0, 3). */
const metadataNames: { [E in keyof Endpoints]: string } = {
  authorizationUrl: 'authorization_endpoint',
  tokenUrl: 'token_endpoint',
  userInfoUrl: 'userinfo_endpoint',
  jwksUrl: 'jwks_uri',
}

/** The part that every issuer publishes; one that signs for machines only has no authorization endpoint. */
const SigningDocument = z.object({ issuer: z.string(), jwks_uri: z.string() })

const DiscoveryDocument = SigningDocument.extend({
  authorization_endpoint: z.string(),
  token_endpoint: z.string(),
  userinfo_endpoint: z.string().optional(),
  token_endpoint_auth_methods_supported: z.array(z.string()).optional(),
})

const blockedMessage = 'discovery URL must use HTTPS and must not point to internal network addresses'

const hints: Record<FailureKind, string> = {
  blocked: 'use the public address of the issuer; OUTBOUND_ALLOW_CIDRS opens ranges of your own network',
  dns: 'the name has no address: is the issuer spelled right?',
  refused: 'nothing listens there: is the issuer spelled right, port included?',
  tls: 'its certificate was not accepted: has it expired, and does it name this host? OUTBOUND_CA_FILE adds authorities',
  timeout: 'it took more than 10 s: try again, or set the endpoints by hand',
  broken: 'there was no whole reply: try again, or set the endpoints by hand',
}

/** Fetches the discovery document of an issuer. @throws DiscoveryFailure */
export async function discover(outbound: Outbound, issuer: string): Promise<DiscoveredProvider> {
  const metadata = await fetchDocument(outbound, issuer, DiscoveryDocument)
  const found = Object.fromEntries(
    endpoints.map((endpoint) => [
      endpoint,
      metadata[metadataNames[endpoint] as keyof typeof metadata] ?? null,
    ]),
  ) as Endpoints
  await checkEndpoints(outbound, found)
  return { issuer, ...found, tokenAuth: tokenAuthOf(metadata) }
}

/** null is the default, basic, unless the provider only supports post (OpenID Connect Discovery 1.0, 3). */
function tokenAuthOf({ token_endpoint_auth_methods_supported: known }: z.output<typeof DiscoveryDocument>) {
  if (known === undefined || known.includes('client_secret_basic')) return null
  return known.includes('client_secret_post') ? ('client_secret_post' as const) : null
}

/** Fetches the address of an issuer's keys. @throws DiscoveryFailure */
export async function discoverKeys(outbound: Outbound, issuer: string): Promise<string> {
  const { jwks_uri: jwksUrl } = await fetchDocument(outbound, issuer, SigningDocument)
  await checkEndpoints(outbound, { jwksUrl })
  return jwksUrl
}

async function fetchDocument<D extends typeof SigningDocument>(
  outbound: Outbound,
  issuer: string,
  document: D,
): Promise<z.output<D>> {
  const url = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`
  const reply = await outbound
    .send({ method: 'GET', url, headers: { accept: 'application/json' }, milliseconds, maxBody })
    .catch((error: unknown) => {
      if (!(error instanceof OutboundFailure)) throw error
      throw new DiscoveryFailure(error.kind === 'blocked' ? blockedMessage : error.message, hints[error.kind])
    })
  const metadata = parseDocument(reply, url, document)
  if (metadata.issuer !== issuer) {
    const shown = metadata.issuer.slice(0, maxLength)
    throw new DiscoveryFailure(
      `the issuer calls itself "${shown}"`,
      `the issuer has to be what it calls itself, to the letter: ${shown}`,
    )
  }
  return metadata
}

async function checkEndpoints(outbound: Outbound, found: Partial<Endpoints>): Promise<void> {
  const faults = await endpointFaults(outbound, found)
  for (const [endpoint, fault] of faults) {
    throw new DiscoveryFailure(
      `its ${metadataNames[endpoint]} ${fault}`,
      'whoever runs the identity provider has to publish public HTTPS addresses; or set the endpoints by hand',
    )
  }
}

function parseDocument<D extends typeof SigningDocument>(
  { status, isWhole, body }: OutboundReply,
  url: string,
  document: D,
): z.output<D> {
  if (status !== 200) {
    const hint = `there is no discovery document at ${url}: is the issuer right, with its path?`
    throw new DiscoveryFailure(String(status), hint)
  }
  if (!isWhole) throw new DiscoveryFailure('the document is larger than 1 MiB', `look at ${url}`)
  const { success, data, error } = safeParse(document, parseJson(body))
  if (success) return data
  const [path] = error.issues.map((issue) => issue.path.join('.'))
  const what = path ? `the document has no ${path}` : 'the document is not JSON'
  throw new DiscoveryFailure(what, `${url} has to be an OpenID Connect discovery document`)
}

/** Faults of the addresses that tokens and codes are sent to: they have to be HTTPS and public. */
export async function endpointFaults(
  outbound: Outbound,
  some: { [E in keyof Endpoints]?: string | null | undefined },
): Promise<[keyof Endpoints, string][]> {
  const faults = await Promise.all(
    endpoints.map(async (endpoint): Promise<[keyof Endpoints, string | undefined]> => {
      const url = some[endpoint]
      return [endpoint, url ? await endpointFault(outbound, url) : undefined]
    }),
  )
  return faults.flatMap(([endpoint, fault]) => (fault === undefined ? [] : [[endpoint, fault]]))
}

async function endpointFault(outbound: Outbound, url: string): Promise<string | undefined> {
  if (url.length > maxLength) return `must be at most ${maxLength} characters`
  const fault = urlFault(url, false)
  if (fault !== undefined) return fault
  const { network } = await outbound.locateHost(new URL(url))
  if (network === 'unresolved') return 'has a host that could not be resolved'
  return network === 'public' ? undefined : 'must not point to internal network addresses'
}
