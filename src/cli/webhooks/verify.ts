import { readBytes, readStdinBytes } from '../ask.ts'
import { CliError, exitCodes, SilentExit, usageError } from '../exit-codes.ts'
import { type Output, printNote, printRecord } from '../print.ts'
import { type Style, styleFor } from '../style.ts'
import { savedHeaders } from './saved-headers.ts'
import {
  checkSignature,
  missingHeaders,
  readSigningSecret,
  type SignatureCheck,
  schemeNames,
  secondsFrom,
  toleranceText,
} from './signature-check.ts'

export type VerifyFlags = {
  secret: string
  header?: string[] | undefined
  headers?: string | undefined
  tolerance?: number | undefined
}

/** Verifies the signature of a saved delivery. */
export async function verifyDelivery(output: Output, file: string, flags: VerifyFlags): Promise<void> {
  if (file === '-' && flags.secret === '-') {
    throw usageError('The body and --secret cannot both come from standard input', 'use --secret @file')
  }
  const headers = savedHeaders(flags.headers, flags.header ?? [])
  const secret = await readSigningSecret(flags.secret)
  const body = file === '-' ? await readStdinBytes('the body') : readBytes(file, 'the body')
  const time = { tolerance: flags.tolerance, now: Date.now() }
  const judged = checkSignature(secret, headers, body, time)
  if (judged.verdict === 'unsigned') {
    throw new CliError(`Cannot tell: ${judged.reason}`, {
      exit: exitCodes.unverifiable,
      code: 'unsigned',
      hint: "give the headers of the delivery: --headers FILE, or --header 'X-Service-Signature: …' for each",
    })
  }
  const record = { ...judged, signedAt: judged.signedAt?.toISOString() ?? null }
  await printRecord(output, record, undefined, async () =>
    lines(judged, headers, time, styleFor(process.stdout)),
  )
  if (judged.verdict === 'valid') return
  if (!isOutside(judged)) {
    printNote(
      'Is it the secret of this webhook? The body has to be byte for byte as received, no line end added or lost',
    )
  }
  throw new SilentExit(exitCodes.failure)
}

/** The signatures are valid, but outside of the tolerance. */
const isOutside = ({ verdict, native, standard }: SignatureCheck): boolean =>
  verdict === 'invalid' && native !== 'invalid' && standard !== 'invalid'

function lines(
  judged: SignatureCheck,
  headers: Record<string, string>,
  { tolerance, now }: { tolerance: number | undefined; now: number },
  style: Style,
): string {
  const tones = { valid: style.good, invalid: style.bad, absent: style.dim }
  const about = (['native', 'standard'] as const).map((kind) => {
    const missing = missingHeaders(kind, headers)
    const without = missing.length > 0 ? ` (missing: ${missing.join(', ')})` : ''
    return `${schemeNames[kind]}: ${tones[judged[kind]](judged[kind])}${without}\n`
  })
  const when = judged.signedAt
    ? `signed at ${judged.signedAt.toISOString()}, ${secondsFrom(judged.signedAt, now)}`
    : 'signed at a time that cannot be read'
  if (!isOutside(judged)) return `${about.join('')}${when}\n`
  const limit = judged.signedAt ? `, ${toleranceText(tolerance!)}` : ''
  return `${about.join('')}${style.bad(`${when}${limit}`)}\n`
}
