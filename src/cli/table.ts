import { visible } from '../core/terminal.ts'
import { asText, type Column, titleOf, valueAt } from './columns.ts'
import { plain, type Style, toned } from './style.ts'

/** A text that has one line, as wide as it will be: names come from machines we do not trust. */
export const printable = (text: string): string => visible(text).replaceAll('\n', '⏎').replaceAll('\t', ' ')

export type TableOptions = {
  header: boolean
  style: Style
  /** Columns of the terminal; undefined keeps every cell whole. */
  width: number | undefined
}

const gap = 2
const narrowest = 8

const isWhole = (column: Column): boolean =>
  column === 'id' || column.endsWith('Id') || column.endsWith('.id')

/** Aligned columns. Only a terminal cuts cells, and never an id. */
export async function table(rows: unknown[], wanted: Column[], options: TableOptions): Promise<string> {
  const { header, style, width } = options
  const columns = width === undefined ? wanted : roomFor(wanted, width)
  const cells = rows.map((row) => columns.map((column) => printable(cellOf(valueAt(row, column))) || '-'))
  const titles = columns.map((column) => printable(titleOf(column)))
  const widest = columns.map((_, i) =>
    cells.reduce((most, line) => Math.max(most, widthOf(line[i]!)), header ? widthOf(titles[i]!) : 1),
  )
  const widths = width === undefined ? widest : squeezed(widest, columns, width)
  const line = (texts: string[], styled: (text: string, shown: string) => string) =>
    `${texts
      .map((text, i) => {
        const shown = cut(text, widths[i]!)
        const padding = i === texts.length - 1 ? '' : ' '.repeat(widths[i]! - widthOf(shown) + gap)
        return styled(text, shown) + padding
      })
      .join('')
      .trimEnd()}\n`
  const head = header ? line(titles, (_, shown) => style.heading(shown)) : ''
  return head + cells.map((texts) => line(texts, (text, shown) => toned(style, text, shown))).join('')
}

/** What fits, with … for the rest. */
function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  let kept = ''
  let left = width - 1
  for (const character of text) {
    left -= widthOf(character)
    if (left < 0) break
    kept += character
  }
  return `${kept}…`
}

/** For reading: a list of plain values is said with commas. */
function cellOf(value: unknown): string {
  const isList = Array.isArray(value) && value.every((one) => one === null || typeof one !== 'object')
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return isList ? value.map(asText).join(', ') : asText(value)
}

const narrow = /^[\u0020-\u007e]*$/
const invisible = /\p{M}|\u200b|\u200c|\u200d/gu
const wide =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]/gu

/** Columns a text takes on a terminal. */
export const widthOf = (text: string): number =>
  narrow.test(text) ? text.length : [...text.replace(invisible, '').replace(wide, '  ')].length

/** Without the last ids that would not fit beside the rest: a person can do without, a pipe gets them all. */
function roomFor(columns: Column[], width: number): Column[] {
  const least = (kept: Column[]) =>
    kept.reduce((sum, one) => sum + (isWhole(one) ? 36 : narrowest) + gap, -gap)
  const kept = [...columns]
  for (let i = kept.length - 1; i > 0 && least(kept) > width; i -= 1) if (isWhole(kept[i]!)) kept.splice(i, 1)
  return kept
}

/** Takes width from the widest columns until the line fits. */
function squeezed(widest: number[], columns: Column[], width: number): number[] {
  const fitted = [...widest]
  const total = () => fitted.reduce((sum, one) => sum + one + gap, -gap)
  for (let excess = total() - width; excess > 0; excess = total() - width) {
    const at = fitted.reduce(
      (best, one, i) =>
        !isWhole(columns[i]!) && one > narrowest && (best === -1 || one > fitted[best]!) ? i : best,
      -1,
    )
    if (at === -1) break
    fitted[at] = fitted[at]! - 1
  }
  return fitted
}

/** A record as lines: plain values first, then each part under its own heading. */
export async function sections(
  record: Record<string, unknown>,
  style: Style = plain,
  depth = 0,
): Promise<string> {
  const indent = '  '.repeat(depth)
  const isPart = (value: unknown) =>
    value !== null && typeof value === 'object' && Object.keys(value).length > 0
  const entries = Object.entries(record).filter(([, value]) => value !== undefined)
  const values = entries.filter(([, value]) => !isPart(value))
  const longest = Math.max(0, ...values.map(([key]) => widthOf(labelOf(key))))
  const lines = values.map(([key, value]) => {
    const name = `${labelOf(key)}:`
    const label = name + ' '.repeat(longest + 2 - widthOf(name))
    return `${indent}${style.faint(label)}${toned(style, printable(shown(value)))}\n`
  })
  const parts = await Promise.all(
    entries
      .filter(([, value]) => isPart(value))
      .map(async ([key, value]) => {
        const heading = `\n${indent}${style.heading(labelOf(key))}\n`
        return heading + (await part(value as object, style, depth + 1))
      }),
  )
  return lines.join('') + parts.join('')
}

async function part(value: object, style: Style, depth: number): Promise<string> {
  const indent = '  '.repeat(depth)
  if (!Array.isArray(value)) return sections(value as Record<string, unknown>, style, depth)
  const isRecord = (one: unknown) => one !== null && typeof one === 'object' && !Array.isArray(one)
  if (!value.every(isRecord)) return value.map((one) => `${indent}${printable(asText(one))}\n`).join('')
  const columns = [...new Set(value.flatMap((one) => Object.keys(one as object)))]
  const text = await table(value, columns, { header: true, style, width: undefined })
  return text.replace(/^(?=.)/gm, indent)
}

const shown = (value: unknown): string => {
  if (value === null) return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return typeof value === 'object' ? (Array.isArray(value) ? 'none' : '-') : String(value)
}

const abbreviations = /\b(cpu|ram|gpu|os|ip|bios|mac|mb|gb|mfa|otp|qr|url|sso|jwks)\b/gi

/** `lastSeenAt` as `Last seen at`, `ramTotalMb` as `RAM total MB`. */
export function labelOf(key: string): string {
  const words = key.replace(/[A-Z]+/g, (capitals) => ` ${capitals.toLowerCase()}`)
  const sentence = words.charAt(0).toUpperCase() + words.slice(1)
  return printable(sentence.replace(abbreviations, (word) => word.toUpperCase()))
}
