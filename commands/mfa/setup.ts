import { command } from '../../src/cli/command.ts'
import { formatMfaSetup } from '../../src/cli/mfa.ts'
import { auth } from '../../src/identity/contract.ts'

export default command(auth.setupMfa, {
  format: formatMfaSetup,
  description: 'Scan the QR code with an authenticator app, then confirm with svc mfa enable.',
  examples: [
    'svc mfa setup --json\n{\n  "secret": "JBSWY3DPEHPK3PXP",\n  "otpAuthUrl": "otpauth://totp/…",\n  "qrCodeDataUrl": "data:image/png;base64,…",\n  "recoveryCodes": ["ABCD-2345"]\n}',
    'svc mfa setup',
  ],
})
