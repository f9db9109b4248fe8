import { X509Certificate } from 'node:crypto'
import { type Fault, invalid } from '../core/errors.ts'
import type { Instant } from '../core/time.ts'
import { endpoints, type ProviderRecord } from './rules.ts'

const requiredFields = {
  oidc: ['issuer', 'clientId', 'clientSecret', ...endpoints],
  saml: ['entityId', 'ssoUrl', 'certificate'],
} as const

/**
 * An active provider has to be complete.
 * @throws invalid_request, naming each missing field, in the part of the request that it belongs to
 */
export function checkReady(provider: ProviderRecord, now: Instant, part: 'body' | 'provider'): void {
  const faults = missingFields(provider, part)
  if (provider.type === 'saml' && provider.certificate !== null) {
    const end = new X509Certificate(provider.certificate).validToDate.toISOString()
    if (end <= now) faults.push({ path: `${part}.certificate`, message: `expired at ${end}` })
  }
  if (faults.length > 0) throw invalid(faults)
}

/** The same for a trial, which may use an expired certificate. @throws invalid_request */
export function checkComplete(provider: ProviderRecord): void {
  const faults = missingFields(provider, 'provider')
  if (faults.length > 0) throw invalid(faults)
}

export const isComplete = (provider: ProviderRecord): boolean =>
  missingFields(provider, 'provider').length === 0

const missingFields = (provider: ProviderRecord, part: 'body' | 'provider'): Fault[] =>
  requiredFields[provider.type]
    .filter((field) => provider[field] === null)
    .map((field) => ({ path: `${part}.${field}`, message: missingMessage(field) }))

const missingMessage = (field: string): string =>
  (endpoints as readonly string[]).includes(field)
    ? 'is missing in an active provider: set it, or the issuer again, which then is asked for it'
    : 'is missing in an active provider'

/**
 * Converts a certificate to the stored form, PEM; metadata contain its base64 alone.
 * @throws invalid_request when it is not exactly one certificate
 */
export function parseCertificate(text: string): string {
  const wrapped = /^-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----$/.exec(
    text.trim(),
  )
  const base64 = wrapped?.[1] ?? text
  try {
    if (!/^[A-Za-z0-9+/=\s]+$/.test(base64)) throw new Error('no base64')
    return new X509Certificate(Buffer.from(base64, 'base64')).toString()
  } catch {
    // OpenSSL says where its parser stopped, which helps nobody.
    throw invalid([{ path: 'body.certificate', message: 'must be one X.509 certificate, as PEM' }])
  }
}
