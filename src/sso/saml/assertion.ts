import { addSeconds, type Instant, issuerClockSkew } from '../../core/time.ts'
import { SsoFailure } from '../failures.ts'
import type { ExpectedResponse } from './expected.ts'
import { bearer, nameIdFormats, namespaces } from './names.ts'
import { childrenOf, type Element, isNamed, malformedXml, quoteForDetail, textOf } from './xml.ts'

/** A verified assertion of an identity provider. */
export type Assertion = {
  id: string
  nameId: string
  nameIdFormat: string | undefined
  sessionIndex: string | undefined
  /** How the person signed in at the provider. */
  authnContext: string | undefined
  attributes: Record<string, string[]>
  /** When it expires here, including clock skew: its id has to be remembered until then. */
  notOnOrAfter: Instant
}

const inAssertion = (element: Element, name: string) => childrenOf(element, namespaces.assertion, name)

/**
 * Parses a signed assertion and checks issuer, audience, times and the sign-in it replies to.
 * @throws SsoFailure, of the first check that fails
 */
export function parseAssertion(element: Element, expected: ExpectedResponse): Assertion {
  const id = element.attributes.get('ID')
  if (!id || element.attributes.get('Version') !== '2.0')
    throw malformedXml('the assertion is not of SAML 2.0')
  checkIssuer(only(element, 'Issuer'), expected)
  const conditions = only(element, 'Conditions')
  const until = [checkTimes(conditions, expected)]
  checkAudience(conditions, expected)
  const subject = only(element, 'Subject')
  until.push(checkConfirmation(subject, expected))
  const [statement] = checkStatements(element, expected)
  checkSignedInSince(statement!, expected)
  return {
    id,
    ...nameIn(subject),
    sessionIndex: statement!.attributes.get('SessionIndex'),
    authnContext: contextIn(statement!),
    attributes: attributesIn(element),
    notOnOrAfter: addSeconds(new Date(Math.min(...until)).toISOString(), issuerClockSkew),
  }
}

/**
 * SAML core 3.4.1: with ForceAuthn the person has to authenticate now, whatever session they have at the
 * provider.
 */
function checkSignedInSince(statement: Element, { signedInSince }: ExpectedResponse): void {
  if (signedInSince === undefined) return
  const at = timeIn(statement, 'AuthnInstant')
  if (at !== undefined && at >= Date.parse(signedInSince) - issuerClockSkew * 1000) return
  throw new SsoFailure('saml_not_forced', `they signed in at ${at === undefined ? 'no time' : instantOf(at)}`)
}

function only(element: Element, name: string): Element {
  const [first, ...more] = inAssertion(element, name)
  if (first === undefined || more.length > 0)
    throw malformedXml(`${element.name} has ${first ? more.length + 1 : 'no'} ${name}`)
  return first
}

/** SAML core 2.2.5, profiles 4.1.4.2: an exact match. */
export function checkIssuer(element: Element, { issuer }: ExpectedResponse): void {
  const format = element.attributes.get('Format')
  const stated = textOf(element)
  if (stated === issuer && (format === undefined || format === nameIdFormats.entity)) return
  throw new SsoFailure('saml_issuer_mismatch', `it says ${quoteForDetail(stated)}, not "${issuer}"`)
}

/** SAML core 2.5.1.2, 1.3.3. @returns when it expires */
function checkTimes(element: Element, { now }: ExpectedResponse): number {
  const [from, to] = ['NotBefore', 'NotOnOrAfter'].map((name) => timeIn(element, name))
  if (from !== undefined && Date.parse(now) < from - issuerClockSkew * 1000) {
    throw new SsoFailure('saml_not_yet_valid', `${element.name}: from ${instantOf(from)}; here it is ${now}`)
  }
  if (to !== undefined && Date.parse(now) >= to + issuerClockSkew * 1000) {
    throw new SsoFailure('saml_expired', `${element.name}: until ${instantOf(to)}; here it is ${now}`)
  }
  return to ?? Number.POSITIVE_INFINITY
}

const instantOf = (time: number): Instant => new Date(time).toISOString()

function timeIn(element: Element, name: string): number | undefined {
  const stated = element.attributes.get(name)
  if (stated === undefined) return undefined
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(stated)
    ? Date.parse(stated)
    : Number.NaN
  if (Number.isNaN(time)) throw malformedXml(`${name} is ${quoteForDetail(stated)}, which is no time`)
  return time
}

/** SAML core 2.5.1, 2.5.1.4: each restriction has to name this service; an unknown condition fails. */
function checkAudience(conditions: Element, { entityId }: ExpectedResponse): void {
  const known = ['AudienceRestriction', 'OneTimeUse', 'ProxyRestriction']
  const other = conditions.children.find(
    (child) => !known.some((name) => isNamed(child, namespaces.assertion, name)),
  )
  if (other) throw malformedXml(`the condition ${other.name} is not known here`)
  const restrictions = inAssertion(conditions, 'AudienceRestriction').map((restriction) =>
    inAssertion(restriction, 'Audience').map(textOf),
  )
  if (restrictions.length > 0 && restrictions.every((audiences) => audiences.includes(entityId))) return
  const stated = restrictions.flat().map(quoteForDetail).join(', ').slice(0, 500) || 'nobody'
  throw new SsoFailure('saml_audience_mismatch', `it is for ${stated}, not "${entityId}"`)
}

/**
 * SAML profiles 4.1.4.3: one bearer confirmation has to be valid here, in reply to this service's request.
 * @returns when it expires
 */
function checkConfirmation(subject: Element, expected: ExpectedResponse): number {
  const bearers = inAssertion(subject, 'SubjectConfirmation').filter(
    (confirmation) => confirmation.attributes.get('Method') === bearer,
  )
  const failures: SsoFailure[] = []
  for (const confirmation of bearers) {
    try {
      return checkBearer(only(confirmation, 'SubjectConfirmationData'), expected)
    } catch (error) {
      if (!(error instanceof SsoFailure)) throw error
      failures.push(error)
    }
  }
  throw failures[0] ?? new SsoFailure('saml_recipient_mismatch', 'it has no bearer confirmation')
}

function checkBearer(data: Element, expected: ExpectedResponse): number {
  const { acsUrl, requestId } = expected
  const recipient = data.attributes.get('Recipient')
  if (recipient !== acsUrl) {
    throw new SsoFailure(
      'saml_recipient_mismatch',
      `its recipient is ${quoteForDetail(recipient)}, not "${acsUrl}"`,
    )
  }
  const request = data.attributes.get('InResponseTo')
  if (request !== requestId) {
    throw new SsoFailure('saml_request_mismatch', `the assertion is in reply to ${quoteForDetail(request)}`)
  }
  const until = checkTimes(data, expected)
  if (until === Number.POSITIVE_INFINITY)
    throw new SsoFailure('saml_expired', 'it does not say until when it counts')
  return until
}

/** SAML core 2.7.2, profiles 4.1.4.2: a person has signed in, and that session has not ended. */
function checkStatements(element: Element, { now }: ExpectedResponse): Element[] {
  const statements = inAssertion(element, 'AuthnStatement')
  if (statements.length === 0) throw new SsoFailure('saml_no_subject', 'it has no AuthnStatement')
  for (const statement of statements) {
    const end = timeIn(statement, 'SessionNotOnOrAfter')
    if (end === undefined || Date.parse(now) < end + issuerClockSkew * 1000) continue
    throw new SsoFailure(
      'saml_expired',
      `the session at the provider: at ${instantOf(end)}; here it is ${now}`,
    )
  }
  return statements
}

/** The longest persistent identifier (SAML core 8.3.7); an e-mail address is shorter. */
const longestName = 256

/** SAML core 2.2.3. All text counts: a comment inside, which no signature covers, does not cut it short. */
function nameIn(subject: Element): Pick<Assertion, 'nameId' | 'nameIdFormat'> {
  const [element, ...more] = inAssertion(subject, 'NameID')
  const nameId = element === undefined ? '' : textOf(element)
  if (element === undefined || more.length > 0 || nameId.trim() === '' || nameId.length > longestName) {
    throw new SsoFailure('saml_no_subject', `its NameID is ${quoteForDetail(nameId)}`)
  }
  return { nameId, nameIdFormat: element.attributes.get('Format') }
}

const contextIn = (statement: Element): string | undefined =>
  inAssertion(statement, 'AuthnContext')
    .flatMap((context) => inAssertion(context, 'AuthnContextClassRef'))
    .map((reference) => textOf(reference).trim())[0]

/** SAML core 2.7.3.1: attributes of all statements; values of a repeated attribute are combined. */
function attributesIn(element: Element): Record<string, string[]> {
  const found = new Map<string, string[]>()
  const all = inAssertion(element, 'AttributeStatement').flatMap((statement) =>
    inAssertion(statement, 'Attribute'),
  )
  for (const attribute of all) {
    const name = attribute.attributes.get('Name') ?? ''
    const values = inAssertion(attribute, 'AttributeValue').map(({ text }) => text)
    found.set(name, [...(found.get(name) ?? []), ...values])
  }
  return Object.fromEntries(found)
}
