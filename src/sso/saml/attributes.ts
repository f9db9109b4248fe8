import { type AssertedIdentity, isFalse } from '../asserted-identity.ts'
import { SsoFailure } from '../failures.ts'
import type { AttributeMapping } from '../presets/contract.ts'
import type { Assertion } from './assertion.ts'
import { nameIdFormats } from './names.ts'

type Field = keyof AttributeMapping

const claims = 'http://schemas.xmlsoap.org/ws/2005/05/identity/claims'

/** Common attribute names for each field. */
const defaultAttributes: Record<Field, string[]> = {
  email: [`${claims}/emailaddress`, 'urn:oid:0.9.2342.19200300.100.1.3', 'email'],
  name: [`${claims}/name`, 'urn:oid:2.16.840.1.113730.3.1.241', 'name', 'displayName'],
  firstName: [`${claims}/givenname`, 'urn:oid:2.5.4.42', 'firstName'],
  lastName: [`${claims}/surname`, 'urn:oid:2.5.4.4', 'lastName'],
  groups: [
    'http://schemas.microsoft.com/ws/2008/06/identity/claims/groups',
    'http://schemas.xmlsoap.org/claims/Group',
    'groups',
  ],
}

/** Authentication contexts that state a second factor: REFEDS MFA, Microsoft, SAML authentication context 3.4. */
const multiFactor = [
  'https://refeds.org/profile/mfa',
  'http://schemas.microsoft.com/claims/multipleauthn',
  'urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorUnregistered',
  'urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorContract',
]
const methods = 'http://schemas.microsoft.com/claims/authnmethodsreferences'

/**
 * Reads a person's identity, by the mapped names first, then by common ones.
 * @throws SsoFailure saml_no_subject when the identifier changes with every sign-in
 */
export function identityFromAssertion(assertion: Assertion, mapping: AttributeMapping): AssertedIdentity {
  const { nameId, nameIdFormat, sessionIndex, authnContext, attributes } = assertion
  checkNotTransient(assertion)
  const listOf = (field: Field) =>
    readAttribute(attributes, [mapping[field] ?? [], defaultAttributes[field]].flat())
  const textOf = (field: Field) => listOf(field)[0]
  const parts = [textOf('firstName'), textOf('lastName')].filter((part) => part !== undefined)
  const contexts = [authnContext, ...(attributes[methods] ?? [])]
  return {
    subject: nameId,
    email: textOf('email') ?? addressIn(nameId),
    emailVerified: !isFalse(readAttribute(attributes, ['email_verified'])),
    name: textOf('name') ?? (parts.length > 0 ? parts.join(' ') : undefined),
    groups: listOf('groups'),
    mfa: contexts.some((context) => context !== undefined && multiFactor.includes(context)),
    profile: { ...attributes, nameId, nameIdFormat, sessionIndex, authnContext },
  }
}

/**
 * SAML core 8.3.8: a transient identifier is for one sign-in; an account linked with it would never be found
 * again.
 */
function checkNotTransient({ nameIdFormat }: Assertion): void {
  if (nameIdFormat !== nameIdFormats.transient) return
  const detail = `the NameID is transient: set its format at the provider to ${nameIdFormats.email}, or to persistent`
  throw new SsoFailure('saml_no_subject', detail)
}

/** The values of the first non-empty attribute: matched by full name, then by the last segment of a URI. */
function readAttribute(attributes: Assertion['attributes'], names: string[]): string[] {
  const all = Object.entries(attributes).map(([name, values]) => ({
    name,
    end: lastSegment(name)?.toLowerCase(),
    values: values.map((value) => value.trim()).filter((value) => value !== ''),
  }))
  const found = [
    ...names.flatMap((wanted) => all.filter(({ name }) => name === wanted)),
    ...names.flatMap((wanted) => all.filter(({ end }) => end === wanted.toLowerCase())),
  ]
  return found.find(({ values }) => values.length > 0)?.values ?? []
}

const lastSegment = (name: string): string | undefined =>
  /^https?:/.test(name) ? /([^/]+)\/*$/.exec(name)?.[1] : undefined

const addressIn = (nameId: string): string | undefined =>
  /^[^\s@]+@[^\s@]+$/.test(nameId.trim()) ? nameId.trim() : undefined
