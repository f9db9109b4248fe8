import type { Cookie } from '../../core/endpoint.ts'
import { failures, type SsoFailure } from '../failures.ts'
import { signInSeconds } from './rules.ts'

/** Addresses for browsers: `app` is the dashboard; without it the service's own pages are used. */
export type WebConfig = {
  /** Public address of the service; undefined when it is not configured in production. */
  url: () => string | undefined
  app: string | undefined
  /** SAML_SP_ENTITY_ID */
  samlEntityId: string | undefined
}

/** The page on which a person approves the sign-in of a terminal, which may need a sign-in first. */
const devicePage = '/device'

/**
 * Whether the sign-in ends at a page of the service itself: that of a terminal's approval is nowhere else, and without an
 * application no path leads anywhere.
 */
export const isServicePage = ({ app }: WebConfig, target: string): boolean =>
  target === devicePage || (app === undefined && target.startsWith('/'))

export function codeRedirect(web: WebConfig, target: string, code: string): string {
  if (isServicePage(web, target)) return `${target === devicePage ? devicePage : '/login'}#ssoCode=${code}`
  return `${target.startsWith('/') ? (web.app ?? '') : ''}${target}#ssoCode=${code}`
}

export function failureRedirect(
  { app }: WebConfig,
  { code }: SsoFailure,
  { target = '/', orgId }: { target?: string | undefined; orgId?: string | undefined } = {},
): string {
  const { message, hint } = failures[code]
  const query = new URLSearchParams({ error: code, message, hint, ...(orgId !== undefined && { orgId }) })
  return target.startsWith('/') ? `${app ?? ''}/login?${query}` : `${target}?${query}`
}

export function trialRedirect({ app }: WebConfig, target: string, status: string, code?: string): string {
  const query = new URLSearchParams({ ssoTest: status, ...(code !== undefined && { error: code }) })
  return target.startsWith('/') ? `${app ?? ''}/login?${query}` : `${target}?${query}`
}

/** One cookie per sign-in, so that a browser may have several pending. */
export const cookieName = (stateHash: string): string => `${prefix}${stateHash.slice(0, 16)}`
const prefix = 'service_sso_'

/** The secrets of a browser's pending sign-ins. */
export const browserSecrets = (cookies: Readonly<Record<string, string | undefined>>): string[] =>
  Object.entries(cookies).flatMap(([name, value]) => (name.startsWith(prefix) && value ? value : []))

/** The secret of a browser during a sign-in; it names the provider, also after the sign-in was deleted. */
export const browserSecretFor = (secret: string, providerId: string): string => `${secret}.${providerId}`
export const providerOf = (browser: string): string => browser.slice(browser.indexOf('.') + 1)

/** Ties a sign-in to the browser that began it; cross-site, because a SAML provider posts from its own site. */
export function cookieFor(stateHash: string, value: string | null, base: string): Cookie {
  const secure = base.startsWith('https:')
  const name = cookieName(stateHash)
  return { name, value, path: '/api/v1/sso', seconds: signInSeconds, secure, crossSite: true }
}

/** Addresses to register at a provider. */
export const acsUrl = (base: string): string => `${base}/api/v1/sso/saml/acs`
export const entityIdOf = ({ samlEntityId }: WebConfig, base: string): string =>
  samlEntityId ?? `${base}/api/v1/sso/saml/metadata`
export const redirectUri = (base: string): string => `${base}/api/v1/sso/callback`

/** Addresses that an administrator registers at a provider. */
export function registrationUrls(web: WebConfig, { type }: { type: 'oidc' | 'saml' }) {
  const base = web.url()
  const isSaml = type === 'saml'
  return {
    redirectUri: base === undefined || isSaml ? null : redirectUri(base),
    acsUrl: base === undefined || !isSaml ? null : acsUrl(base),
    serviceEntityId: base === undefined || !isSaml ? null : entityIdOf(web, base),
  }
}
