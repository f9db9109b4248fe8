import { checkSignatures, isReadableSecret, type SignatureHeaders } from '../../core/webhook-signature.ts'
import { readSecret } from '../ask.ts'
import { usageError } from '../exit-codes.ts'

type SignatureScheme = 'native' | 'standard'
export const schemeNames: Record<SignatureScheme, string> = {
  native: 'native',
  standard: 'Standard Webhooks',
}

type Outcome = 'valid' | 'invalid' | 'absent'

export type SignatureCheck = {
  verdict: 'valid' | 'invalid' | 'unsigned'
  native: Outcome
  standard: Outcome
  signedAt: Date | undefined
  /** Why it is not valid. */
  reason: string | null
}

const headersOf: Record<SignatureScheme, readonly string[]> = {
  native: ['X-Service-Signature', 'X-Service-Signature-Timestamp'],
  standard: ['webhook-signature', 'webhook-id', 'webhook-timestamp'],
}

/** The missing headers that a present signature needs for verification. */
export function missingHeaders(kind: SignatureScheme, headers: SignatureHeaders): string[] {
  const isThere = (name: string) => Boolean(headers[name.toLowerCase()]?.trim())
  return isThere(headersOf[kind][0]!) ? headersOf[kind].filter((name) => !isThere(name)) : []
}

/** Valid: there is a signature, every signature is valid, and its time is within `tolerance` seconds. */
export function checkSignature(
  secret: string,
  headers: SignatureHeaders,
  body: Buffer,
  { tolerance, now = Date.now() }: { tolerance: number | undefined; now?: number },
): SignatureCheck {
  const { signedAt: at, ...found } = checkSignatures(secret, headers, body)
  const signedAt = at === undefined ? undefined : new Date(at)
  const kinds = ['native', 'standard'] as const
  if (kinds.every((kind) => found[kind] === 'absent')) {
    const missing = kinds.flatMap((kind) => missingHeaders(kind, headers))
    const reason = missing.length > 0 ? `missing: ${missing.join(', ')}` : 'there is no signature'
    return { verdict: 'unsigned', ...found, signedAt, reason }
  }
  const wrong = kinds.filter((kind) => found[kind] === 'invalid')
  const reason =
    wrong.length > 0
      ? `${wrong.map((kind) => schemeNames[kind]).join(' and ')}: not these bytes, or another secret`
      : tolerance === undefined
        ? null
        : outside(signedAt, tolerance, now)
  return { verdict: reason === null ? 'valid' : 'invalid', ...found, signedAt, reason }
}

function outside(signedAt: Date | undefined, tolerance: number, now: number): string | null {
  if (signedAt === undefined) return 'its time of signing cannot be read'
  if (Math.abs(now - signedAt.getTime()) <= tolerance * 1000) return null
  return `signed ${secondsFrom(signedAt, now)}, ${toleranceText(tolerance)}`
}

export const toleranceText = (tolerance: number): string => `more than the ${tolerance} s allowed`

export function secondsFrom(at: Date, now: number): string {
  const seconds = Math.round((now - at.getTime()) / 1000)
  return seconds >= 0 ? `${seconds} s ago` : `${-seconds} s from now`
}

/** The secret of a webhook, as `--secret` names it. */
export async function readSigningSecret(flag: string): Promise<string> {
  const secret = await readSecret(flag, '--secret')
  if (secret === '') throw usageError('--secret is empty', 'give the complete secret of the webhook')
  if (!isReadableSecret(secret)) {
    throw usageError(
      '--secret begins with whsec_, but no base64 follows',
      'give the complete secret of the webhook',
    )
  }
  return secret
}
