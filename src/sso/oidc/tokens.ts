import { z } from 'zod'
import { isJsonObject, parseJson } from '../../core/json.ts'
import {
  type FailureKind,
  type Outbound,
  OutboundFailure,
  type OutboundReply,
  type OutboundRequest,
} from '../../core/outbound.ts'
import { safeParse } from '../../core/schema.ts'
import { type FailureCode, SsoFailure } from '../failures.ts'
import type { ProviderRecord } from '../rules.ts'
import type { IdTokenClaims } from './claims.ts'

const Tokens = z.object({
  access_token: z.string().min(1).max(100_000),
  id_token: z.string().min(1).max(100_000).optional(),
  refresh_token: z.string().min(1).max(100_000).optional(),
  expires_in: z.coerce.number().int().positive().max(1e9).optional().catch(undefined),
})
export type Tokens = z.output<typeof Tokens>

const Refusal = z.object({ error: z.string(), error_description: z.string().optional().catch(undefined) })

const milliseconds = 10_000
const maxBody = 1 << 20

/**
 * Redeems the code of a sign-in (RFC 6749, 4.1.3, with the verifier of RFC 7636).
 * @throws SsoFailure
 */
export async function exchangeCode(
  outbound: Outbound,
  provider: ProviderRecord,
  { code, verifier, redirectUri }: { code: string; verifier: string; redirectUri: string },
): Promise<Tokens> {
  const { clientId, clientSecret, tokenUrl, tokenAuth } = provider
  const form = new URLSearchParams({
    grant_type: 'authorization_code',
    code,
    redirect_uri: redirectUri,
    code_verifier: verifier,
    ...(tokenAuth === 'client_secret_post' && { client_id: clientId!, client_secret: clientSecret! }),
  })
  const headers = {
    'content-type': 'application/x-www-form-urlencoded',
    accept: 'application/json',
    ...(tokenAuth !== 'client_secret_post' && { authorization: basicAuth(clientId!, clientSecret!) }),
  }
  const reply = await sendToProvider(outbound, 'sso_token_failed', {
    method: 'POST',
    url: tokenUrl!,
    headers,
    body: form.toString(),
    milliseconds,
    maxBody,
  })
  const payload = parseJson(reply.body)
  if (reply.status !== 200) throw tokenFailure(reply, payload, provider)
  const { success, data } = safeParse(Tokens, payload)
  if (!success) throw new SsoFailure('sso_token_failed', 'its reply has no access_token')
  return data
}

/**
 * Fetches the provider's user info about the person who signed in (OpenID Connect Core 1.0, 5.3).
 * @throws SsoFailure
 */
export async function fetchUserInfo(
  outbound: Outbound,
  url: string,
  accessToken: string,
  verified: (token: string) => Promise<IdTokenClaims>,
): Promise<IdTokenClaims> {
  const headers = { authorization: `Bearer ${accessToken}`, accept: 'application/json, application/jwt' }
  const reply = await sendToProvider(outbound, 'sso_userinfo_failed', {
    method: 'GET',
    url,
    headers,
    milliseconds,
    maxBody,
  })
  const [type = ''] = String(reply.headers['content-type'] ?? '').split(';')
  if (reply.status === 200 && type.trim().toLowerCase() === 'application/jwt')
    return verified(reply.body.toString('utf8').trim())
  const payload = parseJson(reply.body)
  if (reply.status === 200 && isJsonObject(payload)) return payload
  const why = reply.status === 200 ? 'its reply is no JSON object' : `it answered ${reply.status}`
  throw new SsoFailure('sso_userinfo_failed', why)
}

async function sendToProvider(
  outbound: Outbound,
  code: FailureCode,
  request: OutboundRequest,
): Promise<OutboundReply> {
  const reply = await outbound.send(request).catch((error: unknown) => {
    if (!(error instanceof OutboundFailure)) throw error
    throw new SsoFailure(failureOfKind[error.kind], `${new URL(request.url).host}: ${error.message}`)
  })
  if (!reply.isWhole) throw new SsoFailure(code, 'its reply is larger than 1 MiB')
  return reply
}

const failureOfKind: Record<FailureKind, FailureCode> = {
  blocked: 'sso_address_blocked',
  dns: 'sso_dns_failed',
  refused: 'sso_provider_unreachable',
  tls: 'sso_tls_failed',
  timeout: 'sso_timeout',
  broken: 'sso_provider_unreachable',
}

/** The likely misconfiguration, as far as the provider reports it (RFC 6749, 5.2). */
function tokenFailure(
  { status }: OutboundReply,
  payload: unknown,
  { clientSecret }: ProviderRecord,
): SsoFailure {
  const { success, data } = safeParse(Refusal, payload)
  const { error, error_description: text = '' } = success ? data : { error: '' }
  const detail = `it answered ${status}${error && ` ${error}`}${text && `: ${text}`}`.slice(0, 500)
  const isRedirect = error === 'redirect_uri_mismatch' || /redirect[ _-]?uri/i.test(text)
  const ofStatus = status === 401 ? 'sso_client_rejected' : 'sso_token_failed'
  const code = isRedirect ? 'sso_redirect_rejected' : (failureOfRefusal[error] ?? ofStatus)
  const isPadded = code === 'sso_client_rejected' && clientSecret?.trim() !== clientSecret
  return new SsoFailure(code, isPadded ? `${detail}; the secret has space around it` : detail)
}

const failureOfRefusal: Record<string, FailureCode> = {
  invalid_client: 'sso_client_rejected',
  unauthorized_client: 'sso_client_rejected',
  invalid_grant: 'sso_code_rejected',
  invalid_scope: 'sso_scope_refused',
}

/** RFC 6749, 2.3.1: both are form-encoded first. */
function basicAuth(clientId: string, secret: string): string {
  const encoded = (text: string) => new URLSearchParams({ '': text }).toString().slice(1)
  return `Basic ${Buffer.from(`${encoded(clientId)}:${encoded(secret)}`).toString('base64')}`
}
