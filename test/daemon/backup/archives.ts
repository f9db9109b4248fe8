import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import type { Head, Tail } from '../../../daemon/backup/format.ts'
import { someFile } from './filled.ts'

/* Archives taken apart and put together again, by tests that forge them. */

export const linesOf = (bytes: Buffer): string[] =>
  zstdDecompressSync(bytes).toString('utf8').trimEnd().split('\n')

export const packed = (lines: readonly string[]): Buffer =>
  zstdCompressSync(lines.map((line) => `${line}\n`).join(''))

const sha256 = (text: string | Buffer): string => createHash('sha256').update(text).digest('hex')

/** With the tail that these lines should have: what a forger who knows the format would write. */
export function sealed(lines: readonly string[], unreadable?: Tail['unreadable']): string[] {
  const tables: Record<string, { rows: number; sha256: string }> = {}
  const files: Record<string, { bytes: number; sha256: string }> = {}
  let table: { name: string; rows: string[] } | undefined
  const close = () => {
    if (table) {
      const text = table.rows.map((row) => `${row}\n`).join('')
      tables[table.name] = { rows: table.rows.length, sha256: sha256(text) }
    }
    table = undefined
  }
  for (const line of lines) {
    if (line.startsWith('[')) table?.rows.push(line)
    else {
      close()
      const value = JSON.parse(line)
      if (typeof value.table === 'string') table = { name: value.table, rows: [] }
      if (typeof value.file === 'string') {
        const content = Buffer.from(value.content, 'base64')
        files[value.file] = { bytes: content.length, sha256: sha256(content) }
      }
    }
  }
  close()
  const whole = sha256(lines.map((line) => `${line}\n`).join(''))
  return [...lines, JSON.stringify({ tables, files, unreadable, sha256: whole })]
}

export async function fileOf(bytes: Buffer): Promise<string> {
  const file = await someFile()
  await writeFile(file, bytes)
  return file
}

export const bytesOf = (file: string): Promise<Buffer> => readFile(file)

/** The lines of a table within the lines of an archive: its own, and those of its rows. */
export function sectionOf(
  lines: readonly string[],
  table: string,
): { from: number; to: number; columns: string[] } {
  const from = lines.findIndex((line) => line.startsWith(`{"table":"${table}"`))
  let to = from + 1
  while (lines[to]?.startsWith('[')) to++
  return { from, to, columns: (JSON.parse(lines[from]!) as { columns: string[] }).columns }
}

/** Changes one cell of a row of a table. */
export function withCell(
  lines: readonly string[],
  table: string,
  change: { row?: number; column: string; value: (before: unknown) => unknown },
): string[] {
  const { from, columns } = sectionOf(lines, table)
  const at = from + 1 + (change.row ?? 0)
  const row = JSON.parse(lines[at]!) as unknown[]
  const place = columns.indexOf(change.column)
  row[place] = change.value(row[place])
  return lines.with(at, JSON.stringify(row))
}

export function withHead(lines: readonly string[], change: (head: Head) => unknown): string[] {
  const head = JSON.parse(lines[0]!) as Head
  change(head)
  return lines.with(0, JSON.stringify(head))
}
