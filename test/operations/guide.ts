import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type Block, blocksIn } from '../markdown-blocks.ts'

export type { Block }

const folder = new URL('../../docs/operations/', import.meta.url)

export const guidePath = fileURLToPath(folder)
export const textOf = (name: string): string => readFileSync(new URL(name, folder), 'utf8')

export const pageOf = (name: string): string => textOf(`${name}.md`)

/** The text with each of these replaced, which all have to be there. */
export function replaced(text: string, pairs: Readonly<Record<string, string>>): string {
  let result = text
  for (const [from, to] of Object.entries(pairs)) {
    if (!result.includes(from)) throw new Error(`the text has no ${from}`)
    result = result.replaceAll(from, to)
  }
  return result
}

/** The fenced blocks of a page. */
export const blocksOf = (page: string): Block[] => blocksIn(page, pageOf(page))

/** The commands in the last column of the table of symptoms. */
export const remedies = (): string[] =>
  [...pageOf('troubleshooting').matchAll(/\| `([^`]+)` \|$/gm)].map(([, command]) => command!)
