import { type AssertedIdentity, isFalse } from '../asserted-identity.ts'
import type { AttributeMapping } from '../presets/contract.ts'

export type IdTokenClaims = Record<string, unknown>

/** Reads a person's identity by the mapped claim names, from the ID token first, then from the user info. */
export function identityFromClaims(
  { subject, idToken, userInfo }: { subject: string; idToken: IdTokenClaims; userInfo: IdTokenClaims },
  mapping: AttributeMapping,
): Omit<AssertedIdentity, 'tokens'> {
  const claims = { ...userInfo, ...idToken }
  const read = (claim: string | undefined) =>
    claim === undefined ? undefined : textOf(findClaim(claims, claim))
  const parts = [read(mapping.firstName), read(mapping.lastName)].filter((part) => part !== undefined)
  // Reads whether the address is verified from the same token as the address.
  const source = findClaim(idToken, mapping.email) === undefined ? userInfo : idToken
  return {
    subject,
    email: read(mapping.email),
    emailVerified: !isFalse(source.email_verified ?? claims.email_verified),
    name: read(mapping.name) ?? (parts.length > 0 ? parts.join(' ') : undefined),
    groups: mapping.groups === undefined ? [] : listOf(findClaim(claims, mapping.groups)),
    mfa: listOf(idToken.amr).includes('mfa'),
    profile: claims,
  }
}

/**
 * Finds a claim by its name, else by a dotted path into nested objects. Some providers use URLs as names, so
 * the plain name goes first.
 */
function findClaim(claims: IdTokenClaims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name]
  let at: unknown = claims
  for (const part of name.split('.')) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, part)) return undefined
    at = (at as IdTokenClaims)[part]
  }
  return at
}

const textOf = (value: unknown): string | undefined => {
  const [first] = Array.isArray(value) ? value : [value]
  const text = typeof first === 'string' ? first.trim() : ''
  return text === '' ? undefined : text
}

const listOf = (value: unknown): string[] =>
  (Array.isArray(value) ? value : [value]).filter((one): one is string => typeof one === 'string')
