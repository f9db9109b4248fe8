import { command } from '../../src/cli/command.ts'
import { sso } from '../../src/sso/contract.ts'

export default command(sso.presets, {
  columns: ['id', 'name', 'type', 'issuer', 'ssoUrl'],
  description: 'Replace the parts in braces. SAML presets also say where to find the certificate.',
  examples: [
    'svc sso presets --columns id,type,issuer\nID        TYPE  ISSUER\nazure-ad  oidc  https://login.microsoftonline.com/{tenant}/v2.0\nokta      oidc  https://{domain}.okta.com',
    'svc sso presets --jq \'.data[] | select(.id == "okta-saml").certificateInstructions\'\nApplications, your application, Sign On, SAML Signing Certificates: download the active one.',
  ],
})
