import pg from 'pg'

const { BOOL, INT8, NUMERIC } = pg.types.builtins

/**
 * Converts values to what SQLite returns: counts and sums (int8, numeric) are numbers, the result of a comparison is
 * 0 or 1.
 */
export function getTypeParser(oid: number, format?: 'text' | 'binary'): (text: string) => unknown {
  if (oid === INT8 || oid === NUMERIC) return number
  if (oid === BOOL) return flag
  return pg.types.getTypeParser(oid, format as 'text')
}

function number(text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw new RangeError(`${text} is too large to be an exact number`)
  }
  return value
}

function flag(text: string): number {
  return text === 't' ? 1 : 0
}
