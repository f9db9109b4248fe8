import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import { exportJWK, generateKeyPair } from 'jose'
import { type Configuration, Provider } from 'oidc-provider'
import { listening, type testCertificate } from '../cli/network.ts'

export type Account = { email: string; name: string; email_verified?: boolean }

/** A third-party provider, certified for OpenID Connect, over HTTPS on this machine; the caller closes it. */
export async function certifiedProvider(
  certificate: ReturnType<typeof testCertificate>,
  {
    redirectUri,
    accounts,
    userInfoAlgorithm,
  }: { redirectUri: string; accounts: Record<string, Account>; userInfoAlgorithm?: 'RS256' },
) {
  let handle: RequestListener = (_, reply) => void reply.writeHead(503).end()
  const server = createServer(certificate.pair(), (request, reply) => handle(request, reply))
  const issuer = `https://127.0.0.1:${await listening(server)}`
  const { privateKey } = await generateKeyPair('RS256', { extractable: true })
  const minutes = 600
  const configuration: Configuration = {
    clients: [
      {
        client_id: 'svc',
        client_secret: 'hush',
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code'],
        response_types: ['code'],
        ...(userInfoAlgorithm && { userinfo_signed_response_alg: userInfoAlgorithm }),
      },
    ],
    jwks: { keys: [{ ...(await exportJWK(privateKey)), kid: 'first', alg: 'RS256', use: 'sig' }] },
    cookies: { keys: ['only for tests'] },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
    features: { devInteractions: { enabled: false }, jwtUserinfo: { enabled: true } },
    interactions: { url: (_, { uid }) => `/interaction/${uid}` },
    ttl: {
      AccessToken: minutes,
      AuthorizationCode: 60,
      IdToken: minutes,
      Grant: minutes,
      Interaction: minutes,
      Session: minutes,
    },
    findAccount: (_, sub) => {
      const account = accounts[sub]
      return account && { accountId: sub, claims: () => ({ sub, email_verified: true, ...account }) }
    },
    // The provider is the organization's own, so it shows no consent screen.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        accountId: oidc.session!.accountId!,
        clientId: oidc.client!.clientId,
      })
      grant.addOIDCScope('openid email profile')
      await grant.save()
      return grant
    },
  }
  const provider = new Provider(issuer, configuration)
  const protocol = provider.callback()
  handle = (request, reply) => {
    if (request.url?.startsWith('/interaction/')) void signIn(provider, request, reply)
    else void protocol(request, reply)
  }
  return {
    issuer,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** The login page of the provider, which accepts any name without a password. */
async function signIn(provider: Provider, request: IncomingMessage, reply: ServerResponse): Promise<void> {
  if (request.method === 'GET') {
    const form = '<form method="post"><input name="login" aria-label="Login"><button>Sign in</button></form>'
    return void reply.writeHead(200, { 'content-type': 'text/html' }).end(`<title>Provider</title>${form}`)
  }
  let text = ''
  for await (const chunk of request) text += chunk
  const accountId = new URLSearchParams(text).get('login') ?? ''
  const result =
    accountId === 'nobody' ? { error: 'access_denied' } : { login: { accountId, remember: true } }
  await provider.interactionFinished(request, reply, result, { mergeWithLastSubmission: false })
}
