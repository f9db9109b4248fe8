import { hash, type KeyLike, type KeyObject, verify, X509Certificate } from 'node:crypto'
import type { HashAlgorithm, SignatureAlgorithm } from 'xml-crypto'
import { SsoFailure } from '../failures.ts'
import { digestMethods, enveloped, exclusiveC14n, namespaces, signatureMethods } from './names.ts'
import {
  childrenOf,
  descendantsOf,
  type Element,
  isNamed,
  malformedXml,
  parseXml,
  quoteForDetail,
} from './xml.ts'

/** An XML name (XML Schema, NCName) without characters that have a meaning in the library's XPath. */
const idForm = /^[\p{L}_][\p{L}\p{N}._-]*$/u

const inSignature = (element: Element, name: string) => childrenOf(element, namespaces.signature, name)

/**
 * The element covered by `signature`, parsed from the exact bytes that were verified. Whatever else the
 * document contains, and however another parser reads it, is ignored.
 * @param element the signature's parent, which it has to sign
 * @param text the whole document, as it was parsed
 * @throws SsoFailure
 */
export async function verifySignedElement(
  signature: Element,
  { element, text, certificate }: { element: Element; text: string; certificate: X509Certificate },
): Promise<Element> {
  checkShape(signature)
  const [signedInfo] = inSignature(signature, 'SignedInfo')
  const [reference] = inSignature(signedInfo!, 'Reference')
  checkAlgorithms(signedInfo!, reference!)
  checkKey(signedInfo!, certificate.publicKey)
  checkReference(reference!, element)
  const part = parseXml(await checkedBytes(signature, text, certificate))
  // The earlier checks imply this; the signed bytes decide.
  const isSame = isNamed(part, element.namespace!, element.name)
  if (!isSame || part.attributes.get('ID') !== element.attributes.get('ID')) {
    throw ambiguousSignature(`the signature in ${element.name} is over ${part.name}`)
  }
  return part
}

/** No two elements may share an id, in any spelling of the attribute: a reference could mean either. */
export function checkIds(document: Element): void {
  const seen = new Set<string>()
  for (const element of descendantsOf(document)) {
    for (const [name, value] of element.attributes) {
      if (!/^(?:.*:)?id$/i.test(name)) continue
      if (seen.has(value)) throw ambiguousSignature(`two elements have the ID ${quoteForDetail(value)}`)
      seen.add(value)
    }
  }
}

/** XML Signature 4: each part once, in order, and no Object, which could hide other content. */
function checkShape(signature: Element): void {
  const [signedInfo, signatureValue, ...rest] = signature.children
  const isWhole =
    signedInfo !== undefined &&
    signatureValue !== undefined &&
    isNamed(signedInfo, namespaces.signature, 'SignedInfo') &&
    isNamed(signatureValue, namespaces.signature, 'SignatureValue') &&
    rest.length <= 1 &&
    rest.every((child) => isNamed(child, namespaces.signature, 'KeyInfo'))
  if (!isWhole)
    throw ambiguousSignature('the signature has other parts than SignedInfo, SignatureValue and KeyInfo')
  checkParts(signedInfo, ['CanonicalizationMethod', 'SignatureMethod', 'Reference'])
  checkParts(inSignature(signedInfo, 'Reference')[0]!, ['Transforms', 'DigestMethod', 'DigestValue'])
}

function checkParts(element: Element, names: string[]): void {
  const isExact =
    element.children.length === names.length &&
    element.children.every((child, index) => isNamed(child, namespaces.signature, names[index]!))
  if (!isExact) throw ambiguousSignature(`${element.name} has other parts than ${names.join(', ')}`)
}

/**
 * SAML core 5.4.3 and 5.4.4, limited to algorithms that are strong today. Its limits on transforms prevent a
 * signature from covering less than it seems to.
 */
function checkAlgorithms(signedInfo: Element, reference: Element): void {
  const algorithmOf = (within: Element, name: string) =>
    inSignature(within, name).map((method) => method.attributes.get('Algorithm') ?? '')
  const [transforms] = inSignature(reference, 'Transforms')
  const used = transforms!.children.map((child) => child.attributes.get('Algorithm') ?? '')
  const known: [used: string[], known: (algorithm: string) => boolean][] = [
    [algorithmOf(signedInfo, 'CanonicalizationMethod'), (it) => it === exclusiveC14n],
    [algorithmOf(signedInfo, 'SignatureMethod'), (it) => Object.hasOwn(signatureMethods, it)],
    [algorithmOf(reference, 'DigestMethod'), (it) => Object.hasOwn(digestMethods, it)],
    [used, (it) => it === enveloped || it === exclusiveC14n],
  ]
  for (const [algorithms, isKnown] of known) {
    const other = algorithms.find((algorithm) => !isKnown(algorithm))
    if (other !== undefined) throw new SsoFailure('saml_algorithm_refused', quoteForDetail(other))
  }
  if (used.join(' ') !== `${enveloped} ${exclusiveC14n}`) {
    throw new SsoFailure(
      'saml_algorithm_refused',
      'the transforms are not: enveloped signature, exclusive C14N',
    )
  }
}

/** 2048 bits is the smallest size considered safe (NIST SP 800-131A). */
function checkKey(signedInfo: Element, key: KeyObject): void {
  const algorithm = inSignature(signedInfo, 'SignatureMethod')[0]!.attributes.get('Algorithm')!
  const { asymmetricKeyType: type, asymmetricKeyDetails: { modulusLength = 2048 } = {} } = key
  if (type !== signatureMethods[algorithm]!.key) {
    throw new SsoFailure(
      'saml_signature_invalid',
      `${algorithm}, but the certificate is of another kind (${type})`,
    )
  }
  if (modulusLength < 2048) {
    throw new SsoFailure('saml_algorithm_refused', `the key of the certificate has ${modulusLength} bits`)
  }
}

/** SAML core 5.4.2: the reference is to the signature's parent, by its ID. */
function checkReference(reference: Element, element: Element): void {
  const id = element.attributes.get('ID') ?? ''
  if (!idForm.test(id)) throw malformedXml(`${quoteForDetail(id)} is no ID`)
  const uri = reference.attributes.get('URI')
  if (uri !== `#${id}`) {
    throw ambiguousSignature(
      `the signature in ${element.name} ${quoteForDetail(id)} is over ${quoteForDetail(uri)}`,
    )
  }
}

/** The canonical bytes that were signed, as the library digested them. */
async function checkedBytes(signature: Element, text: string, certificate: X509Certificate): Promise<string> {
  const { SignedXml } = await import('xml-crypto')
  // A key named in the signature itself is never trusted.
  const check = new SignedXml({ publicCert: certificate.publicKey, getCertFromKeyInfo: () => null })
  const { [enveloped]: envelopedSignature, [exclusiveC14n]: c14n } = check.CanonicalizationAlgorithms
  check.CanonicalizationAlgorithms = { [enveloped]: envelopedSignature!, [exclusiveC14n]: c14n! }
  check.SignatureAlgorithms = verifiers
  check.HashAlgorithms = digests
  let isRight = false
  try {
    check.loadSignature(signature.node as Parameters<typeof check.loadSignature>[0])
    isRight = check.checkSignature(text)
  } catch {
    // The library throws for signatures that it does not support or that do not match.
    throw new SsoFailure('saml_signature_invalid', keysIn(signature, certificate))
  }
  const [bytes, ...more] = check.getSignedReferences()
  if (!isRight || bytes === undefined || more.length > 0) {
    throw new SsoFailure('saml_signature_invalid', 'what was signed is not what is there')
  }
  return bytes
}

/** Detail for finding the cause, mostly a changed certificate of the provider. */
function keysIn(signature: Element, certificate: X509Certificate): string {
  const certificateElement = [...descendantsOf(signature)].find((it) =>
    isNamed(it, namespaces.signature, 'X509Certificate'),
  )
  const known = `known is the certificate with SHA-256 ${certificate.fingerprint256}`
  try {
    const { fingerprint256 } = new X509Certificate(Buffer.from(certificateElement?.text ?? '', 'base64'))
    return `${known}; it says that it was made with ${fingerprint256}`
  } catch {
    // The certificate in the signature is missing or none.
    return known
  }
}

const verifiers = Object.fromEntries(
  Object.entries(signatureMethods).map(([name, { hash }]) => [
    name,
    class implements SignatureAlgorithm {
      getAlgorithmName = () => name
      getSignature = (): never => {
        throw new Error('this service signs nothing')
      }
      /** RFC 9231, 2.3: the two numbers of ECDSA, concatenated. */
      verifySignature = (signed: string, key: KeyLike, value: string): boolean =>
        verify(
          hash,
          Buffer.from(signed),
          { key: key as KeyObject, dsaEncoding: 'ieee-p1363' },
          Buffer.from(value, 'base64'),
        )
    },
  ]),
)

const digests = Object.fromEntries(
  Object.entries(digestMethods).map(([name, algorithm]) => [
    name,
    class implements HashAlgorithm {
      getAlgorithmName = () => name
      getHash = (bytes: string) => hash(algorithm, bytes, 'base64')
    },
  ]),
)

export const ambiguousSignature = (detail: string): SsoFailure =>
  new SsoFailure('saml_signature_ambiguous', detail)
