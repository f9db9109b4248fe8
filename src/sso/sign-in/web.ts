import type { Cookie } from '../../core/endpoint.ts'
import { failures, type SsoFailure } from '../failures.ts'
import { signInSeconds } from './rules.ts'

/** Where browsers go on: `app` is where the dashboard is, without one the pages of the service itself. */
export type WebConfig = {
  /** Where people reach the service; undefined where nobody said so and it is in production. */
  url: () => string | undefined
  app: string | undefined
  /** SAML_SP_ENTITY_ID */
  samlEntityId: string | undefined
}

/** Whether a browser ends at the page of the service itself: without an application no path leads anywhere. */
export const isServicePage = ({ app }: WebConfig, target: string): boolean =>
  app === undefined && target.startsWith('/')

export function codeRedirect(web: WebConfig, target: string, code: string): string {
  if (isServicePage(web, target)) return `/login#ssoCode=${code}`
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

/** One for each sign-in, so that several may be under way in one browser. */
export const cookieName = (stateHash: string): string => `${prefix}${stateHash.slice(0, 16)}`
const prefix = 'service_sso_'

/** What a browser is known by at the sign-ins that are under way in it. */
export const browserSecrets = (cookies: Readonly<Record<string, string | undefined>>): string[] =>
  Object.entries(cookies).flatMap(([name, value]) => (name.startsWith(prefix) && value ? value : []))

/** What a browser is known by while it signs in; of a sign-in that is gone it tells at which provider it was. */
export const browserSecretFor = (secret: string, providerId: string): string => `${secret}.${providerId}`
export const providerOf = (browser: string): string => browser.slice(browser.indexOf('.') + 1)

/** What ties a sign-in to the browser in which it began; a provider of SAML posts from its own site. */
export function cookieFor(stateHash: string, value: string | null, base: string): Cookie {
  const secure = base.startsWith('https:')
  const name = cookieName(stateHash)
  return { name, value, path: '/api/v1/sso', seconds: signInSeconds, secure, crossSite: true }
}

/** The addresses that a provider has to know. */
export const acsUrl = (base: string): string => `${base}/api/v1/sso/saml/acs`
export const entityIdOf = ({ samlEntityId }: WebConfig, base: string): string =>
  samlEntityId ?? `${base}/api/v1/sso/saml/metadata`
export const redirectUri = (base: string): string => `${base}/api/v1/sso/callback`

/** What an administrator tells a provider of this service. */
export function registrationUrls(web: WebConfig, { type }: { type: 'oidc' | 'saml' }) {
  const base = web.url()
  const isSaml = type === 'saml'
  return {
    redirectUri: base === undefined || isSaml ? null : redirectUri(base),
    acsUrl: base === undefined || !isSaml ? null : acsUrl(base),
    serviceEntityId: base === undefined || !isSaml ? null : entityIdOf(web, base),
  }
}
