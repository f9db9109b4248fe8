import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../core/package-files.ts'
import type { Display } from './display.ts'
import { helpPages } from './help-pages.ts'
import { displayWidth, wrapWords } from './text-width.ts'

const folder = (): string => fileURLToPath(packageFile('man/'))

/** Names of the man pages about subjects, such as `svc-audit`. */
export const manualPages = (): string[] => readdirSync(folder()).map((file) => file.split('.')[0]!)

/** What `svc help` explains besides commands. */
export const helpSubjects = (): string[] => [...Object.keys(helpPages), ...manualPages()]

/** The text of such a page; undefined when there is none of this name. `man` shows the same. */
export function manualPage(name: string): string | undefined {
  const file = readdirSync(folder()).find((one) => one.split('.')[0] === name)
  return file && readFileSync(`${folder()}${file}`, 'utf8')
}

/** Longer lines are hard to read, however wide the terminal is; in a pipe they have this length. */
const longestLine = 100

/**
 * A page for a person: headings without marks, and lines that fit. A table whose lines do not becomes a list, in which the
 * first cell of a row stands above the others. Commands and examples stay as they are.
 */
export function fitPage(page: string, { style, width }: Pick<Display, 'style' | 'width'>): string {
  const room = Math.min(width ?? longestLine, longestLine)
  return page
    .split('\n\n')
    .flatMap((block) => {
      const lines = block.split('\n')
      const [first = ''] = lines
      if (/^#+ /.test(first))
        return [style.heading(first.replace(/^#+ /, '')), ...fitted(lines.slice(1).join('\n'), room)]
      return fitted(block, room)
    })
    .join('\n\n')
}

function fitted(block: string, room: number): string[] {
  if (block.trim() === '') return []
  if (block.startsWith('    ')) return [block]
  if (block.startsWith('```')) return [block.replaceAll(/^```.*\n?/gm, '').trimEnd()]
  const plain = block.replace(/\[([^\]]+)\]\([^)]+\)/g, '$1').replaceAll(/\*\*|`/g, '')
  if (plain.startsWith('|')) return [fittedTable(plain, room)]
  // An item begins at its mark; every other line goes on with the one before.
  const items = plain.replace(/\n\s*(?!\s*([-*]|\d+\.) )/g, ' ').split('\n')
  return [items.map((item) => wrapped(item, room)).join('\n')]
}

function wrapped(item: string, room: number): string {
  const [mark] = /^\s*(([-*]|\d+\.) )?/.exec(item)!
  const indent = ' '.repeat(mark.length)
  return wrapWords(item, room, room - indent.length).join(`\n${indent}`)
}

function fittedTable(table: string, room: number): string {
  const rows = table
    .split('\n')
    .filter((line) => !/^\|[-:| ]+\|$/.test(line))
    .map((line) =>
      line
        .slice(1, -1)
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim().replaceAll('\\|', '|')),
    )
  const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => displayWidth(row[at] ?? ''))))
  if (widths.reduce((sum, one) => sum + one + 2, 0) <= room) {
    const padded = (cell: string, at: number) => cell + ' '.repeat(widths[at]! - displayWidth(cell) + 2)
    return rows.map((row) => row.map(padded).join('').trimEnd()).join('\n')
  }
  return rows
    .slice(1)
    .map(([first = '', ...cells]) => {
      const texts = cells
        .filter((cell) => cell !== '')
        .map((cell) => wrapWords(`    ${cell}`, room, room - 4).join('\n    '))
      return [...wrapWords(first, room), ...texts].join('\n')
    })
    .join('\n')
}
