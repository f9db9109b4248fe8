/** Identifiers of SAML 2.0 and XML Signature (SAML core 1.2, 8; bindings 3; XML Signature 6.1, RFC 9231). */

export const namespaces = {
  protocol: 'urn:oasis:names:tc:SAML:2.0:protocol',
  assertion: 'urn:oasis:names:tc:SAML:2.0:assertion',
  metadata: 'urn:oasis:names:tc:SAML:2.0:metadata',
  signature: 'http://www.w3.org/2000/09/xmldsig#',
} as const

export const nameIdFormats = {
  email: 'urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress',
  persistent: 'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent',
  unspecified: 'urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified',
  windows: 'urn:oasis:names:tc:SAML:1.1:nameid-format:WindowsDomainQualifiedName',
  entity: 'urn:oasis:names:tc:SAML:2.0:nameid-format:entity',
  transient: 'urn:oasis:names:tc:SAML:2.0:nameid-format:transient',
} as const

export const postBinding = 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST'
export const bearer = 'urn:oasis:names:tc:SAML:2.0:cm:bearer'
export const statusPrefix = 'urn:oasis:names:tc:SAML:2.0:status:'

export const exclusiveC14n = 'http://www.w3.org/2001/10/xml-exc-c14n#'
export const enveloped = 'http://www.w3.org/2000/09/xmldsig#enveloped-signature'

/** Key type and hash of each method: RSA and EC keys with SHA-2. */
export const signatureMethods: Readonly<Record<string, { key: 'rsa' | 'ec'; hash: string }>> = {
  'http://www.w3.org/2001/04/xmldsig-more#rsa-sha256': { key: 'rsa', hash: 'sha256' },
  'http://www.w3.org/2001/04/xmldsig-more#rsa-sha384': { key: 'rsa', hash: 'sha384' },
  'http://www.w3.org/2001/04/xmldsig-more#rsa-sha512': { key: 'rsa', hash: 'sha512' },
  'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256': { key: 'ec', hash: 'sha256' },
  'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384': { key: 'ec', hash: 'sha384' },
  'http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha512': { key: 'ec', hash: 'sha512' },
}

/** Method that signs this service's requests. */
export const requestSignature = 'http://www.w3.org/2001/04/xmldsig-more#rsa-sha256'

export const digestMethods: Readonly<Record<string, string>> = {
  'http://www.w3.org/2001/04/xmlenc#sha256': 'sha256',
  'http://www.w3.org/2001/04/xmldsig-more#sha384': 'sha384',
  'http://www.w3.org/2001/04/xmlenc#sha512': 'sha512',
}
