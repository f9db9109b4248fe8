import { eventTypes } from '../../core/event-types.ts'
import { linePrinter } from '../line-printer.ts'
import { type Output, writeStdout } from '../print.ts'
import { type Style, styleFor } from '../style.ts'
import { displayWidth, escapeToOneLine } from '../table.ts'
import type { ReceivedDelivery } from './delivery.ts'

const usual = ['receivedAt', 'type', 'eventId', 'signature', 'forwarded.status', 'forwarded.milliseconds']
const known = [
  ...['receivedAt', 'eventId', 'deliveryId', 'sequence', 'type', 'orgId', 'signature', 'reason', 'again'],
  ...['forwarded.status', 'forwarded.milliseconds', 'forwarded.error', 'event'],
]

export type PrintDelivery = (delivery: ReceivedDelivery) => Promise<void>

/** A line for each delivery; JSON is one object a line. */
export async function deliveryPrinter(output: Output): Promise<PrintDelivery> {
  if (output.format === 'id')
    return (delivery) => writeStdout(`${escapeToOneLine(delivery.eventId ?? '-')}\n`)
  if (output.format !== 'plain' || output.columns !== undefined) {
    const print = linePrinter(output, usual, known)
    return (delivery) => print([delivery])
  }
  const style = styleFor(process.stdout)
  return (delivery) => writeStdout(`${line(delivery, style)}\n`)
}

const typeWidth = Math.max(...eventTypes.map((type) => type.length))
const idLength = 36

const tones = { valid: 'good', invalid: 'bad', unsigned: 'bad', unchecked: 'warning' } as const

function line(delivery: ReceivedDelivery, style: Style): string {
  const { receivedAt, type, eventId, signature, again } = delivery
  const parts = [
    receivedAt,
    cell(type, typeWidth),
    cell(eventId, idLength),
    style[tones[signature]](signature.padEnd('unchecked'.length)),
    outcome(delivery, style),
    again ? style.dim('again') : '',
  ]
  return parts.filter(Boolean).join('  ').trimEnd()
}

function cell(text: string | null, width: number): string {
  const shown = escapeToOneLine((text ?? '-').slice(0, 2 * width))
  return shown + ' '.repeat(Math.max(0, width - displayWidth(shown)))
}

function outcome({ forwarded, reason }: ReceivedDelivery, style: Style): string {
  if (reason !== null) return escapeToOneLine(reason)
  if (forwarded === null) return ''
  if ('error' in forwarded) return style.bad(escapeToOneLine(forwarded.error))
  const { status, milliseconds } = forwarded
  const isGood = status >= 200 && status < 300
  return `${style[isGood ? 'good' : 'bad'](String(status))} in ${milliseconds} ms`
}
