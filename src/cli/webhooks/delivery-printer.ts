import { eventTypes } from '../../core/event-types.ts'
import { type Display, displayOf } from '../display.ts'
import { linePrinter } from '../line-printer.ts'
import { type Output, writeStdout } from '../print.ts'
import type { Style } from '../style.ts'
import { displayWidth, escapeToOneLine } from '../table.ts'
import { truncate } from '../text-width.ts'
import { shortInstant } from '../times.ts'
import type { ReceivedDelivery } from './delivery.ts'

const usual = ['receivedAt', 'type', 'eventId', 'signature', 'forwarded.status', 'forwarded.milliseconds']
const known = [
  'receivedAt',
  'eventId',
  'deliveryId',
  'sequence',
  'type',
  'orgId',
  'signature',
  'reason',
  'again',
  'forwarded.status',
  'forwarded.milliseconds',
  'forwarded.error',
  'event',
]

export type PrintDelivery = (delivery: ReceivedDelivery) => Promise<void>

/** A line for each delivery; JSON is one object a line. */
export async function deliveryPrinter(output: Output): Promise<PrintDelivery> {
  if (output.format === 'id')
    return (delivery) => writeStdout(`${escapeToOneLine(delivery.eventId ?? '-')}\n`)
  if (output.format !== 'plain' || output.columns !== undefined) {
    const print = linePrinter(output, usual, known, { secondary: ['eventId'] })
    return (delivery) => print([delivery])
  }
  return (delivery) => writeStdout(`${line(delivery, displayOf(process.stdout, output))}\n`)
}

const typeWidth = Math.max(...eventTypes.map((type) => type.length))
const idLength = 36
const signatureWidth = 'unchecked'.length
const gap = 2
/** An outcome of this width says whether it went well. */
const minOutcomeWidth = 15
const minTypeWidth = 8

const tones = { valid: 'good', invalid: 'bad', unsigned: 'bad', unchecked: 'warning' } as const

/** Complete in a pipe. On a terminal in one line: the id is left out first, then texts are cut. */
function line(delivery: ReceivedDelivery, { style, width, now }: Display): string {
  const { receivedAt, type, eventId, signature, again } = delivery
  const time = (now !== undefined && shortInstant(receivedAt)) || receivedAt
  const repeated = again ? 'again' : ''
  const said = outcomeOf(delivery)
  const room = width ?? Number.POSITIVE_INFINITY
  const fixed = time.length + gap + gap + signatureWidth + gap + (again ? gap + repeated.length : 0)
  const min = Math.min(minOutcomeWidth, displayWidth(said.text))
  const hasId = fixed + typeWidth + gap + idLength + min <= room
  const free = room - fixed - (hasId ? gap + idLength : 0)
  const ofType = Math.min(typeWidth, Math.max(minTypeWidth, free - min))
  const parts = [
    time,
    cell(type, ofType, width !== undefined),
    hasId ? cell(eventId, idLength, width !== undefined) : '',
    style[tones[signature]](signature.padEnd(signatureWidth)),
    said.tone(style)(truncate(said.text, Math.max(1, free - ofType))),
    again ? style.dim(repeated) : '',
  ]
  return parts.filter(Boolean).join(' '.repeat(gap)).trimEnd()
}

function cell(text: string | null, width: number, isCut: boolean): string {
  const whole = escapeToOneLine((text ?? '-').slice(0, 2 * width))
  const shown = isCut ? truncate(whole, width) : whole
  return shown + ' '.repeat(Math.max(0, width - displayWidth(shown)))
}

type Outcome = { text: string; tone: (style: Style) => (text: string) => string }

function outcomeOf({ forwarded, reason }: ReceivedDelivery): Outcome {
  const plain = () => (text: string) => text
  if (reason !== null) return { text: escapeToOneLine(reason), tone: plain }
  if (forwarded === null) return { text: '', tone: plain }
  if ('error' in forwarded) return { text: escapeToOneLine(forwarded.error), tone: ({ bad }) => bad }
  const { status, milliseconds } = forwarded
  const isGood = status >= 200 && status < 300
  return { text: `${status} in ${milliseconds} ms`, tone: ({ good, bad }) => (isGood ? good : bad) }
}
