import { nameIdFormats, namespaces, postBinding } from './names.ts'
import { escaped } from './xml.ts'

/** What an identity provider has to know of this service (SAML metadata 2.3.2, 2.4.4). */
export function serviceMetadata({ entityId, acsUrl }: { entityId: string; acsUrl: string }): string {
  return `<?xml version="1.0" encoding="UTF-8"?>
<md:EntityDescriptor xmlns:md="${namespaces.metadata}" entityID="${escaped(entityId)}">
  <md:SPSSODescriptor AuthnRequestsSigned="false" WantAssertionsSigned="true" protocolSupportEnumeration="${namespaces.protocol}">
    <md:NameIDFormat>${nameIdFormats.email}</md:NameIDFormat>
    <md:AssertionConsumerService Binding="${postBinding}" Location="${escaped(acsUrl)}" index="0" isDefault="true"/>
  </md:SPSSODescriptor>
</md:EntityDescriptor>
`
}
