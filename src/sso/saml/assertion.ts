import { addSeconds, type Instant } from '../../core/time.ts'
import { SsoFailure } from '../failures.ts'
import { type ExpectedResponse, skewSeconds } from './expected.ts'
import { bearer, nameIdFormats, namespaces } from './names.ts'
import { childrenOf, type Element, isNamed, malformedXml, shown, textOf } from './xml.ts'

/** What an identity provider says of somebody, checked. */
export type Assertion = {
  id: string
  nameId: string
  nameIdFormat: string | undefined
  sessionIndex: string | undefined
  /** How they signed in. */
  authnContext: string | undefined
  attributes: Record<string, string[]>
  /** When it stops to count here, for a clock that is behind too: its id has to be remembered as long. */
  notOnOrAfter: Instant
}

const inAssertion = (element: Element, name: string) => childrenOf(element, namespaces.assertion, name)

/**
 * What a signed assertion says, if it is of the expected issuer, for us, for now and for this sign-in.
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
    notOnOrAfter: addSeconds(new Date(Math.min(...until)).toISOString(), skewSeconds),
  }
}

/** SAML core 3.4.1: ForceAuthn wants them to prove who they are now, whatever session they have there. */
function checkSignedInSince(statement: Element, { signedInSince }: ExpectedResponse): void {
  if (signedInSince === undefined) return
  const at = timeIn(statement, 'AuthnInstant')
  if (at !== undefined && at >= Date.parse(signedInSince) - skewSeconds * 1000) return
  throw new SsoFailure('saml_not_forced', `they signed in at ${at === undefined ? 'no time' : instantOf(at)}`)
}

function only(element: Element, name: string): Element {
  const [first, ...more] = inAssertion(element, name)
  if (first === undefined || more.length > 0)
    throw malformedXml(`${element.name} has ${first ? more.length + 1 : 'no'} ${name}`)
  return first
}

/** SAML core 2.2.5, profiles 4.1.4.2: to the letter. */
export function checkIssuer(element: Element, { issuer }: ExpectedResponse): void {
  const format = element.attributes.get('Format')
  const said = textOf(element)
  if (said === issuer && (format === undefined || format === nameIdFormats.entity)) return
  throw new SsoFailure('saml_issuer_mismatch', `it says ${shown(said)}, not "${issuer}"`)
}

/**
 * SAML core 2.5.1.2, 1.3.3.
 * @returns when the time is over
 */
function checkTimes(element: Element, { now }: ExpectedResponse): number {
  const [from, to] = ['NotBefore', 'NotOnOrAfter'].map((name) => timeIn(element, name))
  if (from !== undefined && Date.parse(now) < from - skewSeconds * 1000) {
    throw new SsoFailure('saml_not_yet_valid', `${element.name}: from ${instantOf(from)}; here it is ${now}`)
  }
  if (to !== undefined && Date.parse(now) >= to + skewSeconds * 1000) {
    throw new SsoFailure('saml_expired', `${element.name}: until ${instantOf(to)}; here it is ${now}`)
  }
  return to ?? Number.POSITIVE_INFINITY
}

const instantOf = (time: number): Instant => new Date(time).toISOString()

function timeIn(element: Element, name: string): number | undefined {
  const said = element.attributes.get(name)
  if (said === undefined) return undefined
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(said)
    ? Date.parse(said)
    : Number.NaN
  if (Number.isNaN(time)) throw malformedXml(`${name} is ${shown(said)}, which is no time`)
  return time
}

/** SAML core 2.5.1, 2.5.1.4: each restriction has to name us; a condition that is not known here is not kept. */
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
  const said = restrictions.flat().map(shown).join(', ').slice(0, 500) || 'nobody'
  throw new SsoFailure('saml_audience_mismatch', `it is for ${said}, not "${entityId}"`)
}

/**
 * SAML profiles 4.1.4.3: one of the confirmations has to hold for whoever brings it, here, in reply to our request.
 * @returns when its time is over
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
    throw new SsoFailure('saml_recipient_mismatch', `its recipient is ${shown(recipient)}, not "${acsUrl}"`)
  }
  const request = data.attributes.get('InResponseTo')
  if (request !== requestId) {
    throw new SsoFailure('saml_request_mismatch', `the assertion is in reply to ${shown(request)}`)
  }
  const until = checkTimes(data, expected)
  if (until === Number.POSITIVE_INFINITY)
    throw new SsoFailure('saml_expired', 'it does not say until when it counts')
  return until
}

/** SAML core 2.7.2, profiles 4.1.4.2: somebody has signed in, and that is not over. */
function checkStatements(element: Element, { now }: ExpectedResponse): Element[] {
  const statements = inAssertion(element, 'AuthnStatement')
  if (statements.length === 0) throw new SsoFailure('saml_no_subject', 'it has no AuthnStatement')
  for (const statement of statements) {
    const end = timeIn(statement, 'SessionNotOnOrAfter')
    if (end === undefined || Date.parse(now) < end + skewSeconds * 1000) continue
    throw new SsoFailure(
      'saml_expired',
      `the session at the provider: at ${instantOf(end)}; here it is ${now}`,
    )
  }
  return statements
}

/** As long as a persistent one may be (SAML core 8.3.7); an e-mail address is shorter. */
const longestName = 256

/** SAML core 2.2.3. The text is the whole of it: a comment inside, which no signature covers, does not end it. */
function nameIn(subject: Element): Pick<Assertion, 'nameId' | 'nameIdFormat'> {
  const [element, ...more] = inAssertion(subject, 'NameID')
  const nameId = element === undefined ? '' : textOf(element)
  if (element === undefined || more.length > 0 || nameId.trim() === '' || nameId.length > longestName) {
    throw new SsoFailure('saml_no_subject', `its NameID is ${shown(nameId)}`)
  }
  return { nameId, nameIdFormat: element.attributes.get('Format') }
}

const contextIn = (statement: Element): string | undefined =>
  inAssertion(statement, 'AuthnContext')
    .flatMap((context) => inAssertion(context, 'AuthnContextClassRef'))
    .map((reference) => textOf(reference).trim())[0]

/** SAML core 2.7.3.1, in all statements: what is said twice is said of both. */
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
