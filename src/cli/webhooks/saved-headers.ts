import { readTextFile } from '../ask.ts'
import { usageError } from '../exit-codes.ts'

/** The headers of `--headers`, and of each `--header`, which takes precedence. Names in lower case. */
export function savedHeaders(file: string | undefined, lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {}
  if (file !== undefined) {
    for (const [n, line] of headerLines(readTextFile(file, '--headers')).entries()) {
      const { name, value } = header(line) ?? wrong(`${file}, line ${n + 1} of the headers`, line)
      // Repeated headers are joined, as by a server.
      headers[name] = Object.hasOwn(headers, name) ? `${headers[name]}, ${value}` : value
    }
  }
  for (const line of lines) {
    const { name, value } = header(line) ?? wrong('--header', line)
    headers[name] = value
  }
  return headers
}

/** The lines up to the empty line, without the request line or status line. */
function headerLines(text: string): string[] {
  const lines = text.split(/\r?\n/)
  if (/^[A-Z]+ \S+ HTTP\/|^HTTP\/\d/.test(lines[0]!)) lines.shift()
  const end = lines.findIndex((line) => line.trim() === '')
  return end === -1 ? lines : lines.slice(0, end)
}

function header(line: string): { name: string; value: string } | undefined {
  const [, name, value] = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)$/s.exec(line) ?? []
  return name === undefined ? undefined : { name: name.toLowerCase(), value: value!.trim() }
}

function wrong(where: string, line: string): never {
  throw usageError(`${where} is not a header: ${line.slice(0, 60)}`, "such as 'webhook-id: 0197c1c8-…'")
}
