import { idBeginning } from '../core/ids.ts'

const dots = /(?:…|\.\.\.)$/

/** `01a20c0e…`, as tables on a terminal show ids, or without the dots. With them (`isCut`) it is no name. */
export function idBeginningOf(word: string): { start: string; isCut: boolean } | undefined {
  const start = word.replace(dots, '').toLowerCase()
  return idBeginning.test(start) ? { start, isCut: dots.test(word) } : undefined
}
