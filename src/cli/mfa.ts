import { printable } from './table.ts'

type Setup = { secret: string; otpAuthUrl: string; recoveryCodes: string[] }

/** What a person needs to enrol an authenticator; the picture only where it can be scanned. */
export async function setupPage(reply: Record<string, unknown>): Promise<string> {
  const { secret, otpAuthUrl, recoveryCodes } = reply as Setup
  const picture = process.stdout.isTTY ? await qrCode(otpAuthUrl) : ''
  return [
    ...(picture ? ['Scan this with an authenticator app:', '', picture] : []),
    `Secret:  ${printable(secret)}`,
    `URL:     ${printable(otpAuthUrl)}`,
    '',
    'Recovery codes, shown this once; each signs in once:',
    ...recoveryCodes.map((code) => `  ${printable(code)}`),
    '',
    'Next: svc mfa enable',
    '',
  ].join('\n')
}

async function qrCode(text: string): Promise<string> {
  const { default: qrcode } = await import('qrcode')
  return qrcode.toString(text, { type: 'terminal', small: true })
}
