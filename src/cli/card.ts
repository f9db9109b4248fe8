import { isJsonObject } from '../core/json.ts'
import { escapeToOneLine } from '../core/terminal.ts'
import { formatValue } from './columns.ts'
import { type Display, plainDisplay } from './display.ts'
import { colorStatus } from './style.ts'
import { fitsTable, renderTable } from './table.ts'
import { displayWidth, wrapWords } from './text-width.ts'
import { isTimeField, relativeTime, shortInstant } from './times.ts'

/** Fields without a value that a terminal still shows; more of them would be lines of nothing. */
const fewEmpty = 3

/** How many fields without a value a card leaves out. */
type Omission = { omits: boolean; omitted: number }

/** How a name is shown: those of claims are others' and stay as they are. */
type Label = (key: string) => string

/**
 * A record as lines: plain values first, then each part under its own heading. On a terminal fields without a value are
 * left out where they are many; elsewhere every line is there.
 */
export function renderRecord(record: Record<string, unknown>, display: Display = plainDisplay): string {
  const short: Omission = { omits: display.width !== undefined, omitted: 0 }
  const text = renderFields(record, display, 0, short)
  if (short.omitted <= fewEmpty) return renderFields(record, display, 0, { omits: false, omitted: 0 })
  const note = `${short.omitted} fields without a value are left out: --json has them`
  return `${text}${wrapWords(note, display.width!).map(display.style.dim).join('\n')}\n`
}

function renderFields(
  record: Record<string, unknown>,
  display: Display,
  depth: number,
  omission: Omission,
  label: Label = fieldLabel,
): string {
  const { style, width } = display
  const indent = '  '.repeat(depth)
  const isPart = (value: unknown) =>
    value !== null && typeof value === 'object' && Object.keys(value).length > 0
  const entries = Object.entries(record).filter(([, value]) => value !== undefined)
  const every = entries.filter(([, value]) => !isPart(value))
  const values = omission.omits ? every.filter(([, value]) => !isEmpty(value)) : every
  omission.omitted += every.length - values.length
  const longest = Math.max(0, ...values.map(([key]) => displayWidth(label(key))))
  const hanging = ' '.repeat(indent.length + longest + 2)
  const room = width === undefined ? Number.POSITIVE_INFINITY : Math.max(20, width - hanging.length)
  const lines = values.map(([key, value]) => {
    const name = `${label(key)}:`
    const start = name + ' '.repeat(longest + 2 - displayWidth(name))
    const [first = '', ...rest] = wrapWords(escapeToOneLine(formatPlain(key, value, display)), room)
    const shown = rest.length === 0 ? colorStatus(style, first) : [first, ...rest].join(`\n${hanging}`)
    return `${indent}${style.dim(start)}${shown}\n`
  })
  const parts = entries
    .filter(([, value]) => isPart(value))
    .map(([key, value]) => {
      const part = renderPart(
        value as object,
        display,
        depth + 1,
        omission,
        key === 'claims' ? escapeToOneLine : fieldLabel,
      )
      return part === '' ? '' : `\n${indent}${style.heading(fieldLabel(key))}\n${part}`
    })
  return lines.join('') + parts.join('')
}

function renderPart(
  value: object,
  display: Display,
  depth: number,
  omission: Omission,
  label: Label,
): string {
  const indent = '  '.repeat(depth)
  const fields = (one: unknown) =>
    renderFields(one as Record<string, unknown>, display, depth, omission, label)
  if (!Array.isArray(value)) return fields(value)
  if (!value.every(isJsonObject))
    return value.map((one) => `${indent}${escapeToOneLine(formatValue(one))}\n`).join('')
  const columns = [...new Set(value.flatMap((one) => Object.keys(one as object)))]
  const width = display.width === undefined ? undefined : display.width - indent.length
  const options = { ...display, header: true, width, isArranged: true }
  // One below the other, and no value cut.
  if (!fitsTable(value, columns, options)) return value.map(fields).join('\n')
  return renderTable(value, columns, options).text.replace(/^(?=.)/gm, indent)
}

/** Whether a field says nothing: no value, no text, or an object without fields. An empty list says "none". */
const isEmpty = (value: unknown): boolean =>
  value === null ||
  value === '' ||
  (typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length === 0)

function formatPlain(key: string, value: unknown, { now }: Display): string {
  if (value === null) return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'object') return Array.isArray(value) ? 'none' : '-'
  const text = String(value)
  const short = now !== undefined && isTimeField(key) ? shortInstant(text) : undefined
  return short === undefined ? text : `${short} (${relativeTime(text, now!)})`
}

const abbreviations = /\b(cpu|ram|gpu|os|ip|bios|mac|mb|gb|mfa|otp|qr|url|sso|jwks)\b/gi

/** `lastSeenAt` as `Last seen at`, `ramTotalMb` as `RAM total MB`. What is no name of a field stays as it is. */
function fieldLabel(key: string): string {
  if (!/^[a-z][A-Za-z0-9]*$/.test(key)) return escapeToOneLine(key)
  const words = key.replace(/[A-Z]+/g, (capitals) => ` ${capitals.toLowerCase()}`)
  const sentence = words.charAt(0).toUpperCase() + words.slice(1)
  return escapeToOneLine(sentence.replace(abbreviations, (word) => word.toUpperCase()))
}
