import { readBytes, readStdinBytes } from '../ask.ts'
import { CliError, exits, Silent, usage } from '../exit.ts'
import { type Output, printRecord, say } from '../print.ts'
import { type Style, styleFor } from '../style.ts'
import { distance, type Judgement, judge, kindNames, missingFor, signingSecret, tooFar } from './judging.ts'
import { savedHeaders } from './saved-headers.ts'

export type VerifyFlags = {
  secret: string
  header?: string[] | undefined
  headers?: string | undefined
  tolerance?: number | undefined
}

/** Whether a delivery that was kept is one that the service signed. */
export async function verifyDelivery(output: Output, file: string, flags: VerifyFlags): Promise<void> {
  if (file === '-' && flags.secret === '-') {
    throw usage('The body and --secret cannot both come from standard input', 'use --secret @file')
  }
  const headers = savedHeaders(flags.headers, flags.header ?? [])
  const secret = await signingSecret(flags.secret)
  const body = file === '-' ? await readStdinBytes('the body') : readBytes(file, 'the body')
  const time = { tolerance: flags.tolerance, now: Date.now() }
  const judged = judge(secret, headers, body, time)
  if (judged.verdict === 'unsigned') {
    throw new CliError(`Cannot tell: ${judged.reason}`, {
      exit: exits.unverifiable,
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
    say(
      'Is it the secret of this webhook? The body has to be byte for byte what came, no line end added or lost',
    )
  }
  throw new Silent(exits.failure)
}

/** The signatures are true, but not of this time. */
const isOutside = ({ verdict, native, standard }: Judgement): boolean =>
  verdict === 'invalid' && native !== 'invalid' && standard !== 'invalid'

function lines(
  judged: Judgement,
  headers: Record<string, string>,
  { tolerance, now }: { tolerance: number | undefined; now: number },
  style: Style,
): string {
  const tones = { valid: style.good, invalid: style.bad, absent: style.faint }
  const about = (['native', 'standard'] as const).map((kind) => {
    const missing = missingFor(kind, headers)
    const without = missing.length > 0 ? ` (missing: ${missing.join(', ')})` : ''
    return `${kindNames[kind]}: ${tones[judged[kind]](judged[kind])}${without}\n`
  })
  const when = judged.signedAt
    ? `signed at ${judged.signedAt.toISOString()}, ${distance(judged.signedAt, now)}`
    : 'signed at a time that cannot be read'
  if (!isOutside(judged)) return `${about.join('')}${when}\n`
  const limit = judged.signedAt ? `, ${tooFar(tolerance!)}` : ''
  return `${about.join('')}${style.bad(`${when}${limit}`)}\n`
}
