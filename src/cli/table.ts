import { escapeToOneLine } from '../core/terminal.ts'
import { type Column, columnTitle, formatValue, valueAt } from './columns.ts'
import { colorStatus, plainStyle, type Style } from './style.ts'

export { escapeToOneLine }

export type TableOptions = {
  header: boolean
  style: Style
  /** Columns of the terminal; undefined cuts no cell. */
  width: number | undefined
}

const gap = 2
const minWidth = 8

/**
 * Aligned columns. Cells are cut only on a terminal, and never an id or a time; columns without room are left out from
 * the right, with … in their place: wrapped lines would break the table.
 */
export async function renderTable(rows: unknown[], wanted: Column[], options: TableOptions): Promise<string> {
  const { header, style, width } = options
  const all = wanted.map((column) => layoutColumn(rows, column, options))
  const kept = width === undefined ? all : dropColumns(all, width)
  const widths = width === undefined ? kept.map(({ widest }) => widest) : shrinkColumns(kept, width)
  const line = (texts: string[], styled: (text: string, shown: string) => string) =>
    `${texts
      .map((text, i) => {
        const shown = truncate(text, widths[i]!)
        const padding = i === texts.length - 1 ? '' : ' '.repeat(widths[i]! - displayWidth(shown) + gap)
        return styled(text, shown) + padding
      })
      .join('')
      .trimEnd()}\n`
  const head = header
    ? line(
        kept.map(({ title }) => title),
        (_, shown) => style.heading(shown),
      )
    : ''
  const body = rows.map((_, row) =>
    line(
      kept.map(({ cells }) => cells[row] ?? ''),
      (text, shown) => colorStatus(style, text, shown),
    ),
  )
  return head + body.join('')
}

/** The layout of a column at its full width. */
type ColumnLayout = { title: string; cells: string[]; widest: number; least: number; isId: boolean }

function layoutColumn(rows: unknown[], column: Column, { header, width }: TableOptions): ColumnLayout {
  const title = escapeToOneLine(columnTitle(column))
  const texts = rows.map((row) => escapeToOneLine(cellOf(valueAt(row, column))) || '-')
  const isTime = width !== undefined && texts.every((text) => text === '-' || instant.test(text))
  const cells = isTime ? texts.map((text) => text.replace(instant, '$1 $2Z')) : texts
  const widest = cells.reduce(
    (most, text) => Math.max(most, displayWidth(text)),
    header ? displayWidth(title) : 1,
  )
  const isId = column === 'id' || column.endsWith('Id') || column.endsWith('.id')
  const least = isId || isTime ? widest : Math.min(widest, minWidth)
  return { title, cells, widest, least, isId }
}

/** Times are printed without the fraction of a second. */
const instant = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/

/** Cuts a text to a width, with … at the end. */
function truncate(text: string, width: number): string {
  if (displayWidth(text) <= width) return text
  let kept = ''
  let left = width - 1
  for (const character of text) {
    left -= displayWidth(character)
    if (left < 0) break
    kept += character
  }
  return `${kept}…`
}

/** For reading: a list of plain values is said with commas. */
function cellOf(value: unknown): string {
  const isList = Array.isArray(value) && value.every((one) => one === null || typeof one !== 'object')
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return isList ? value.map(formatValue).join(', ') : formatValue(value)
}

const narrow = /^[\u0020-\u007e]*$/
const invisible = /\p{M}|\u200b|\u200c|\u200d/gu
const wide =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}]/gu

/** Columns a text takes on a terminal. */
export const displayWidth = (text: string): number =>
  narrow.test(text) ? text.length : [...text.replace(invisible, '').replace(wide, '  ')].length

const totalOf = (widths: number[]): number => widths.reduce((sum, one) => sum + one + gap, -gap)

/** Whether every column fits at its minimum width. */
const fits = (columns: ColumnLayout[], width: number): boolean =>
  totalOf(columns.map(({ least }) => least)) <= width

/** Drops ids that do not fit, from the right, then any columns from the right. The first column stays. */
function dropColumns(columns: ColumnLayout[], width: number): ColumnLayout[] {
  const kept = [...columns]
  for (let i = kept.length - 1; i > 0 && !fits(kept, width); i -= 1) if (kept[i]!.isId) kept.splice(i, 1)
  if (fits(kept, width)) return kept
  while (kept.length > 1 && !fits([...kept, ellipsisColumn], width)) kept.pop()
  return fits([...kept, ellipsisColumn], width) ? [...kept, ellipsisColumn] : kept
}

/** Stands for the columns that have no room. */
const ellipsisColumn: ColumnLayout = { title: '…', cells: [], widest: 1, least: 1, isId: false }

/** Takes width from the widest columns until the line fits. */
function shrinkColumns(columns: ColumnLayout[], width: number): number[] {
  const fitted = columns.map(({ widest }) => widest)
  for (let excess = totalOf(fitted) - width; excess > 0; excess -= 1) {
    const at = fitted.reduce(
      (best, one, i) => (one > columns[i]!.least && (best === -1 || one > fitted[best]!) ? i : best),
      -1,
    )
    if (at === -1) break
    fitted[at] = fitted[at]! - 1
  }
  return fitted
}

/** A record as lines: plain values first, then each part under its own heading. */
export async function renderRecord(
  record: Record<string, unknown>,
  style: Style = plainStyle,
  /** Columns of the terminal; undefined cuts no cell. */
  width?: number,
  depth = 0,
): Promise<string> {
  const indent = '  '.repeat(depth)
  const isPart = (value: unknown) =>
    value !== null && typeof value === 'object' && Object.keys(value).length > 0
  const entries = Object.entries(record).filter(([, value]) => value !== undefined)
  const values = entries.filter(([, value]) => !isPart(value))
  const longest = Math.max(0, ...values.map(([key]) => displayWidth(fieldLabel(key))))
  const lines = values.map(([key, value]) => {
    const name = `${fieldLabel(key)}:`
    const label = name + ' '.repeat(longest + 2 - displayWidth(name))
    return `${indent}${style.dim(label)}${colorStatus(style, escapeToOneLine(formatPlain(value)))}\n`
  })
  const parts = await Promise.all(
    entries
      .filter(([, value]) => isPart(value))
      .map(async ([key, value]) => {
        const heading = `\n${indent}${style.heading(fieldLabel(key))}\n`
        return heading + (await renderPart(value as object, style, width, depth + 1))
      }),
  )
  return lines.join('') + parts.join('')
}

async function renderPart(
  value: object,
  style: Style,
  width: number | undefined,
  depth: number,
): Promise<string> {
  const indent = '  '.repeat(depth)
  if (!Array.isArray(value)) return renderRecord(value as Record<string, unknown>, style, width, depth)
  const isRecord = (one: unknown) => one !== null && typeof one === 'object' && !Array.isArray(one)
  if (!value.every(isRecord))
    return value.map((one) => `${indent}${escapeToOneLine(formatValue(one))}\n`).join('')
  const columns = [...new Set(value.flatMap((one) => Object.keys(one as object)))]
  const options = { header: true, style, width: width === undefined ? undefined : width - indent.length }
  const laid = columns.map((column) => layoutColumn(value, column, options))
  if (options.width !== undefined && !fits(laid, options.width)) {
    // One below the other and complete: a single record is shown with all its fields.
    const each = value.map((one) => renderRecord(one as Record<string, unknown>, style, width, depth))
    return (await Promise.all(each)).join('\n')
  }
  return (await renderTable(value, columns, options)).replace(/^(?=.)/gm, indent)
}

const formatPlain = (value: unknown): string => {
  if (value === null) return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return typeof value === 'object' ? (Array.isArray(value) ? 'none' : '-') : String(value)
}

const abbreviations = /\b(cpu|ram|gpu|os|ip|bios|mac|mb|gb|mfa|otp|qr|url|sso|jwks)\b/gi

/** `lastSeenAt` as `Last seen at`, `ramTotalMb` as `RAM total MB`. */
export function fieldLabel(key: string): string {
  const words = key.replace(/[A-Z]+/g, (capitals) => ` ${capitals.toLowerCase()}`)
  const sentence = words.charAt(0).toUpperCase() + words.slice(1)
  return escapeToOneLine(sentence.replace(abbreviations, (word) => word.toUpperCase()))
}
