import { allowSequence } from '../core/terminal.ts'
import { askText, readSecret } from './ask.ts'
import type { CommandContext } from './base.ts'
import { usageError } from './exit-codes.ts'
import { printNote } from './print.ts'
import { storeTokens } from './session.ts'
import { escapeToOneLine } from './table.ts'

type Setup = { secret: string; otpAuthUrl: string; recoveryCodes: string[] }

/** The setup of an authenticator; the QR code only on a terminal. */
export async function formatMfaSetup(reply: Record<string, unknown>): Promise<string> {
  const { secret, otpAuthUrl, recoveryCodes } = reply as Setup
  const picture = process.stdout.isTTY ? await qrCode(otpAuthUrl) : ''
  return [
    ...(picture ? ['Scan this with an authenticator app:', '', picture] : []),
    `Secret:  ${escapeToOneLine(secret)}`,
    `URL:     ${escapeToOneLine(otpAuthUrl)}`,
    '',
    'Recovery codes, displayed only once; each works once:',
    ...recoveryCodes.map((code) => `  ${escapeToOneLine(code)}`),
    '',
    'Next: svc mfa enable',
    '',
  ].join('\n')
}

async function qrCode(text: string): Promise<string> {
  const { default: qrcode } = await import('qrcode')
  return allowSequence(await qrcode.toString(text, { type: 'terminal', small: true }))
}

/** New recovery codes, one per line. */
export const formatRecoveryCodes = (reply: Record<string, unknown>): string =>
  [
    'Recovery codes, displayed only once; each works once, and earlier codes no longer work:',
    ...(reply.recoveryCodes as string[]).map((code) => `  ${escapeToOneLine(code)}`),
    '',
  ].join('\n')

/** A code from a flag, from standard input, or from the person. */
export async function readCode(
  run: CommandContext,
  given: string | undefined,
  question: string,
): Promise<string> {
  if (given === undefined && !run.interactive)
    throw usageError('Missing --code', '--code CODE, or --code - reads standard input')
  const code = given ?? (await askText(question))
  return (code === '-' ? await readSecret('-', 'the code') : code).trim()
}

/** Stores the new tokens of the session; every other session was revoked. */
export async function replaceTokens(
  run: CommandContext,
  tokens: Parameters<typeof storeTokens>[1],
): Promise<void> {
  if (!(await storeTokens(run, tokens)))
    printNote('Every other session was revoked, including the token in SVC_TOKEN: sign in again')
}
