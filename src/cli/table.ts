import { escapeToOneLine } from '../core/terminal.ts'
import { asText, type Column, titleOf, valueAt } from './columns.ts'
import { plain, type Style, toned } from './style.ts'

export { escapeToOneLine }

export type TableOptions = {
  header: boolean
  style: Style
  /** Columns of the terminal; undefined keeps every cell whole. */
  width: number | undefined
}

const gap = 2
const narrowest = 8

/**
 * Aligned columns. Only a terminal cuts cells, and never an id or a time; columns that it has no room for are left out from
 * the right, with … in their place: a line that wraps is no table.
 */
export async function table(rows: unknown[], wanted: Column[], options: TableOptions): Promise<string> {
  const { header, style, width } = options
  const all = wanted.map((column) => laidOut(rows, column, options))
  const kept = width === undefined ? all : roomFor(all, width)
  const widths = width === undefined ? kept.map(({ widest }) => widest) : squeezed(kept, width)
  const line = (texts: string[], styled: (text: string, shown: string) => string) =>
    `${texts
      .map((text, i) => {
        const shown = cut(text, widths[i]!)
        const padding = i === texts.length - 1 ? '' : ' '.repeat(widths[i]! - widthOf(shown) + gap)
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
      (text, shown) => toned(style, text, shown),
    ),
  )
  return head + body.join('')
}

/** A column as it would be with all the room there is. */
type Laid = { title: string; cells: string[]; widest: number; least: number; isId: boolean }

function laidOut(rows: unknown[], column: Column, { header, width }: TableOptions): Laid {
  const title = escapeToOneLine(titleOf(column))
  const texts = rows.map((row) => escapeToOneLine(cellOf(valueAt(row, column))) || '-')
  const isTime = width !== undefined && texts.every((text) => text === '-' || instant.test(text))
  const cells = isTime ? texts.map((text) => text.replace(instant, '$1 $2Z')) : texts
  const widest = cells.reduce((most, text) => Math.max(most, widthOf(text)), header ? widthOf(title) : 1)
  const isId = column === 'id' || column.endsWith('Id') || column.endsWith('.id')
  const least = isId || isTime ? widest : Math.min(widest, narrowest)
  return { title, cells, widest, least, isId }
}

/** To a person the fraction of a second says nothing. */
const instant = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z$/

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

const totalOf = (widths: number[]): number => widths.reduce((sum, one) => sum + one + gap, -gap)

/** Whether every column has room, however narrow. */
const fits = (columns: Laid[], width: number): boolean => totalOf(columns.map(({ least }) => least)) <= width

/** Without the last ids that would not fit beside the rest, then without whatever is last. The first column stays. */
function roomFor(columns: Laid[], width: number): Laid[] {
  const kept = [...columns]
  for (let i = kept.length - 1; i > 0 && !fits(kept, width); i -= 1) if (kept[i]!.isId) kept.splice(i, 1)
  if (fits(kept, width)) return kept
  while (kept.length > 1 && !fits([...kept, more], width)) kept.pop()
  return fits([...kept, more], width) ? [...kept, more] : kept
}

/** Stands for the columns that have no room. */
const more: Laid = { title: '…', cells: [], widest: 1, least: 1, isId: false }

/** Takes width from the widest columns until the line fits. */
function squeezed(columns: Laid[], width: number): number[] {
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
export async function sections(
  record: Record<string, unknown>,
  style: Style = plain,
  /** Columns of the terminal; undefined keeps every cell whole. */
  width?: number,
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
    return `${indent}${style.faint(label)}${toned(style, escapeToOneLine(shown(value)))}\n`
  })
  const parts = await Promise.all(
    entries
      .filter(([, value]) => isPart(value))
      .map(async ([key, value]) => {
        const heading = `\n${indent}${style.heading(labelOf(key))}\n`
        return heading + (await part(value as object, style, width, depth + 1))
      }),
  )
  return lines.join('') + parts.join('')
}

async function part(value: object, style: Style, width: number | undefined, depth: number): Promise<string> {
  const indent = '  '.repeat(depth)
  if (!Array.isArray(value)) return sections(value as Record<string, unknown>, style, width, depth)
  const isRecord = (one: unknown) => one !== null && typeof one === 'object' && !Array.isArray(one)
  if (!value.every(isRecord)) return value.map((one) => `${indent}${escapeToOneLine(asText(one))}\n`).join('')
  const columns = [...new Set(value.flatMap((one) => Object.keys(one as object)))]
  const options = { header: true, style, width: width === undefined ? undefined : width - indent.length }
  const laid = columns.map((column) => laidOut(value, column, options))
  if (options.width !== undefined && !fits(laid, options.width)) {
    // One after the other, with nothing left out: who looks at one record wants all of it.
    const each = value.map((one) => sections(one as Record<string, unknown>, style, width, depth))
    return (await Promise.all(each)).join('\n')
  }
  return (await table(value, columns, options)).replace(/^(?=.)/gm, indent)
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
  return escapeToOneLine(sentence.replace(abbreviations, (word) => word.toUpperCase()))
}
