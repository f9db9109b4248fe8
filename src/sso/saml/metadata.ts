import { nameIdFormats, namespaces, postBinding } from './names.ts'
import { escapeXml } from './xml.ts'

/** Metadata of this service for identity providers (SAML metadata 2.3.2, 2.4.4). */
export function serviceMetadata({
  entityId,
  acsUrl,
  certificate,
  signed,
}: {
  entityId: string
  acsUrl: string
  /** Certificate of the key that signs requests, DER; undefined where there is none yet. */
  certificate: Buffer | undefined
  /** States that all requests are signed: a provider then accepts no unsigned ones. */
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
