import { z } from 'zod'
import { endpoint, publicAccess } from '../../core/endpoint.ts'
import { idOf, secret, text } from '../../core/schema.ts'

const tag = 'SSO'

/** Providers may add parameters to the callback; each known one may occur once. */
const callbackParam = (max: number) => text(max).optional()

const redirect = z.object({ location: z.string() })

export const ssoSignIn = {
  login: endpoint({
    method: 'GET',
    path: '/sso/login/:orgId',
    summary: 'Begin a sign-in at the identity provider of an organization: opened in a browser',
    tag,
    access: publicAccess,
    params: z.strictObject({ orgId: idOf('organization') }),
    query: z.strictObject({
      redirect: text(500)
        .optional()
        .describe(
          'Where the browser goes on: a path, or a port of this machine such as http://127.0.0.1:5000/',
        ),
      challenge: text(128)
        .regex(/^[\w-]{43}$/, 'must be SHA-256 in base64url')
        .optional()
        .describe('Base64url of the SHA-256 of a verifier without which the code is worth nothing'),
      test: secret(text(128, 1)).optional().describe('From a trial of the provider'),
    }),
    status: 302,
    redirects: true,
    reply: redirect.describe('To the identity provider'),
    audit: { unaudited: 'nobody has signed in yet' },
    limit: 'SSO_IP',
    errors: ['sso_not_configured'],
  }),
  callback: endpoint({
    method: 'GET',
    path: '/sso/callback',
    summary: 'Where an identity provider sends a browser back to',
    tag,
    access: publicAccess,
    query: z.object({
      code: secret(callbackParam(4096)),
      state: secret(callbackParam(512)),
      error: callbackParam(256),
      error_description: callbackParam(4096),
      iss: callbackParam(512),
    }),
    status: 302,
    redirects: true,
    reply: redirect.describe('To where the sign-in began, with #ssoCode=… or ?error=…'),
    audit: { action: 'sso.login', resource: 'user' },
    quota: 'MEMBERS',
    limit: 'SSO_RETURN',
    errors: ['sso_failed'],
  }),
  acs: endpoint({
    method: 'POST',
    path: '/sso/saml/acs',
    idempotencyKey: { refused: 'credential' },
    summary: 'Where a SAML provider posts its answer, by way of a browser',
    tag,
    access: publicAccess,
    body: z.object({ SAMLResponse: secret(text(400_000, 1)), RelayState: secret(callbackParam(512)) }),
    form: true,
    status: 302,
    redirects: true,
    reply: redirect.describe('To where the sign-in began, with #ssoCode=… or ?error=…'),
    audit: { action: 'sso.login', resource: 'user' },
    quota: 'MEMBERS',
    limit: 'SSO_RETURN',
    errors: ['sso_failed'],
  }),
  metadata: endpoint({
    method: 'GET',
    path: '/sso/saml/metadata',
    summary: 'What a SAML provider has to know of this service',
    tag,
    access: publicAccess,
    query: z.strictObject({
      signed: z
        .enum(['true', 'false'])
        .optional()
        .describe('For a provider that is to take signed requests alone, as with signRequests'),
    }),
    streams: ['application/samlmetadata+xml'],
    reply: z.string().describe('SAML 2.0 metadata'),
    errors: ['sso_not_configured'],
  }),
  exchange: endpoint({
    method: 'POST',
    path: '/sso/exchange',
    idempotencyKey: { refused: 'credential' },
    summary: 'Exchange the code of a sign-in at an identity provider for tokens, once and within two minutes',
    tag,
    access: publicAccess,
    body: z.strictObject({
      code: secret(text(128, 1)),
      verifier: secret(text(256, 1)).optional().describe('What the challenge of the sign-in is the hash of'),
      sameBrowser: z
        .boolean()
        .optional()
        .describe('Only a sign-in that began in this browser, or has a verifier'),
    }),
    reply: z.object({
      accessToken: secret(z.string()).describe('Bearer token'),
      refreshToken: secret(z.string()),
      expiresInSeconds: z.int(),
    }),
    session: 'starts',
    audit: { action: 'user.login', resource: 'user' },
    emits: ['user.login'],
    limit: 'SSO_RETURN',
    errors: ['invalid_exchange_code'],
    example: { code: 'from-the-fragment-of-the-address' },
  }),
}
