import { nameIdFormats, namespaces, postBinding } from './names.ts'
import { escapeXml } from './xml.ts'

/** What an identity provider has to know of this service (SAML metadata 2.3.2, 2.4.4). */
export function serviceMetadata({
  entityId,
  acsUrl,
  certificate,
  signed,
}: {
  entityId: string
  acsUrl: string
  /** That of the key that requests may be signed with, DER; undefined where there is none yet. */
  certificate: Buffer | undefined
  /** A provider that reads so takes no others. */
  signed: boolean
}): string {
  return `<?xml version="1.0" encoding="UTF-8"?>
<md:EntityDescriptor xmlns:md="${namespaces.metadata}" entityID="${escapeXml(entityId)}">
  <md:SPSSODescriptor AuthnRequestsSigned="${signed && certificate !== undefined}" WantAssertionsSigned="true" protocolSupportEnumeration="${namespaces.protocol}">
${certificate ? keyOf(certificate) : ''}    <md:NameIDFormat>${nameIdFormats.email}</md:NameIDFormat>
    <md:AssertionConsumerService Binding="${postBinding}" Location="${escapeXml(acsUrl)}" index="0" isDefault="true"/>
  </md:SPSSODescriptor>
</md:EntityDescriptor>
`
}

const keyOf = (certificate: Buffer): string =>
  `    <md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="${namespaces.signature}"><ds:X509Data><ds:X509Certificate>${certificate.toString('base64')}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>
`
