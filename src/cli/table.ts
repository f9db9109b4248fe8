import { asText, type Column, titleOf, valueAt } from './columns.ts'
import { plain, type Style, toned } from './style.ts'

/** Whatever would move the cursor or colour the terminal, made visible: names come from machines we do not trust. */
export const printable = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => {
    if (c === '\n') return '⏎'
    if (c === '\t') return ' '
    return `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`
  })

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
  const { default: Table } = await import('cli-table3')
  const columns = options.width === undefined ? wanted : roomFor(wanted, options.width)
  const cells = rows.map((row) => columns.map((column) => printable(asText(valueAt(row, column))) || '-'))
  const titles = columns.map(titleOf)
  const lines = options.header ? [titles, ...cells] : cells
  const none = { top: '', 'top-mid': '', 'top-left': '', 'top-right': '', bottom: '', 'bottom-mid': '' }
  const more = { 'bottom-left': '', 'bottom-right': '', left: '', 'left-mid': '', mid: '', 'mid-mid': '' }
  const grid = new Table({
    chars: { ...none, ...more, right: '', 'right-mid': '', middle: ' '.repeat(gap) },
    style: { 'padding-left': 0, 'padding-right': 0, head: [], border: [], compact: true },
    ...(options.width !== undefined && { colWidths: squeezed(lines, columns, options.width) }),
  })
  if (options.header) grid.push(titles.map((title) => options.style.heading(title)))
  for (const row of cells) grid.push(row.map((cell) => toned(options.style, cell)))
  if (grid.length === 0) return ''
  return `${grid
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')}\n`
}

/** Without the last ids that would not fit beside the rest: a person can do without, a pipe gets them all. */
function roomFor(columns: Column[], width: number): Column[] {
  const least = (kept: Column[]) =>
    kept.reduce((sum, one) => sum + (isWhole(one) ? 36 : narrowest) + gap, -gap)
  const kept = [...columns]
  for (let i = kept.length - 1; i > 0 && least(kept) > width; i -= 1) if (isWhole(kept[i]!)) kept.splice(i, 1)
  return kept
}

/** Takes width from the widest columns until the line fits. */
function squeezed(lines: string[][], columns: Column[], width: number): number[] {
  const fitted = columns.map((_, i) => lines.reduce((most, line) => Math.max(most, line[i]!.length), 1))
  const total = () => fitted.reduce((sum, one) => sum + one + gap, -gap)
  for (let excess = total() - width; excess > 0; excess = total() - width) {
    const widest = fitted.reduce(
      (best, one, i) =>
        !isWhole(columns[i]!) && one > narrowest && (best === -1 || one > fitted[best]!) ? i : best,
      -1,
    )
    if (widest === -1) break
    fitted[widest] = fitted[widest]! - 1
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
  const longest = Math.max(0, ...values.map(([key]) => labelOf(key).length))
  const lines = values.map(([key, value]) => {
    const label = `${labelOf(key)}:`.padEnd(longest + 2)
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

/** `lastSeenAt` as `Last seen at`. */
export function labelOf(key: string): string {
  const words = key.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
  return words.charAt(0).toUpperCase() + words.slice(1)
}
