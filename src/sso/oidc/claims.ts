import { type AssertedIdentity, isFalse } from '../asserted-identity.ts'
import type { AttributeMapping } from '../presets/contract.ts'

export type Claims = Record<string, unknown>

/** What is said of a person, by the names that the provider uses; of the ID token first, then of the user info. */
export function identityFromClaims(
  { subject, idToken, userInfo }: { subject: string; idToken: Claims; userInfo: Claims },
  mapping: AttributeMapping,
): Omit<AssertedIdentity, 'tokens'> {
  const said = { ...userInfo, ...idToken }
  const read = (claim: string | undefined) =>
    claim === undefined ? undefined : textOf(findClaim(said, claim))
  const parts = [read(mapping.firstName), read(mapping.lastName)].filter((part) => part !== undefined)
  // Of the claims that say the same, those beside the address say whether it was verified.
  const source = findClaim(idToken, mapping.email) === undefined ? userInfo : idToken
  return {
    subject,
    email: read(mapping.email),
    emailVerified: !isFalse(source.email_verified ?? said.email_verified),
    name: read(mapping.name) ?? (parts.length > 0 ? parts.join(' ') : undefined),
    groups: mapping.groups === undefined ? [] : listOf(findClaim(said, mapping.groups)),
    mfa: listOf(idToken.amr).includes('mfa'),
    profile: said,
  }
}

/** A claim by its name; else, with dots in it, one inside others. Some providers use addresses as names. */
function findClaim(said: Claims, name: string): unknown {
  if (Object.hasOwn(said, name)) return said[name]
  let at: unknown = said
  for (const part of name.split('.')) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, part)) return undefined
    at = (at as Claims)[part]
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
