import { isJsonObject, parseJson } from '../core/json.ts'
import { usageError } from './exit-codes.ts'

type JsonObject = Record<string, unknown>

/** The records of a text: a JSON array, NDJSON, or else CSV with a line of column names. @throws usage */
export async function parseRecords(text: string): Promise<JsonObject[]> {
  const start = text.replace(/^\uFEFF/, '').trimStart()
  if (start.startsWith('[')) return parseArray(start)
  if (start.startsWith('{'))
    return start.split(/\r?\n/).flatMap((line, at) => (line.trim() === '' ? [] : objectIn(line, at)))
  return fromCsv(text)
}

function parseArray(text: string): JsonObject[] {
  const list = json(text, 'the file')
  return (list as unknown[]).map((one, at) => object(one, `row ${at + 1}`))
}

const objectIn = (line: string, at: number): JsonObject[] => [
  object(json(line, `line ${at + 1}`), `line ${at + 1}`),
]

function object(value: unknown, where: string): JsonObject {
  if (isJsonObject(value)) return value
  throw usageError(`${where} is not a JSON object`)
}

function json(text: string, where: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch (error) {
    throw usageError(`${where} is not JSON: ${(error as Error).message}`)
  }
}

/** `max-devices`, `Max devices` and `maxDevices` are one column. */
const fieldOf = (header: string): string =>
  header
    .trim()
    .replace(/^[A-Z]+(?![a-z])|^[A-Z]/, (start) => start.toLowerCase())
    .replace(/[\s_-]+(\w)/g, (_, letter: string) => letter.toUpperCase())

/** Empty cells are left out; integers and JSON objects are parsed. */
async function fromCsv(text: string): Promise<JsonObject[]> {
  const { parse } = await import('csv-parse/sync')
  const options = { bom: true, trim: true, skip_empty_lines: true }
  try {
    const rows = parse(text, { ...options, columns: (names: string[]) => names.map(fieldOf) }) as JsonObject[]
    return rows.map((row) =>
      Object.fromEntries(
        Object.entries(row)
          .filter(([, cell]) => cell !== '')
          .map(([key, cell]) => [key, cellOf(key, String(cell))]),
      ),
    )
  } catch (error) {
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('CSV_'))
      throw usageError(`The file is not CSV: ${error.message}`)
    throw error
  }
}

/** What is no JSON stays text, which the check of the row names with its column. */
function cellOf(key: string, cell: string): unknown {
  if (cell.startsWith('{')) return parseJson(cell) ?? cell
  return key.startsWith('max') && /^\d+$/.test(cell) ? Number(cell) : cell
}

/** The slug of a name: `Blüe Bakery & Sons` is `blue-bakery-sons`. */
export const slugify = (name: string): string =>
  name
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 100)
    .replace(/^-+|-+$/g, '')
