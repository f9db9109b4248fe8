import type { TableShape } from '../../src/storage/backup/catalog.ts'
import type { Cell } from '../../src/storage/backup/row-pages.ts'
import type { Head } from './format.ts'

/**
 * Compares what the head of an archive says of its rows with the rows, while they pass by: the ends of the audit chains, the
 * fingerprints of the keys and the counters decide about a restore before any row is read. Also finds a row that stands twice
 * or in another place: rows are ordered by primary key.
 */
export class HeadCheck {
  readonly #head: Head
  readonly #heads: string[] = []
  readonly #keys: string[] = []
  #last: { table: string; key: Cell[] } | undefined

  constructor(head: Head) {
    this.#head = head
  }

  /** What is wrong with a row; undefined when nothing is. */
  row({ name, columns, key }: TableShape, row: readonly Cell[]): string | undefined {
    const cellOf = (column: string) => row[columns.findIndex((one) => one.name === column)]!
    const own = key.map(cellOf)
    const before = this.#last?.table === name ? this.#last.key : undefined
    const order = before === undefined ? 1 : compareKeys(own, before)
    if (order === 0) return `a row of ${name} stands in it twice (${key.join()} ${own.join()})`
    if (order < 0) return `a row of ${name} is not in its place (${key.join()} ${own.join()})`
    this.#last = { table: name, key: own }
    if (name === 'audit_heads') {
      this.#heads.push(JSON.stringify(['chain', 'seq', 'checksum'].map(cellOf)))
    } else if (name === 'key_prints') this.#keys.push(JSON.stringify(['name', 'print'].map(cellOf)))
    const [number, ...more] = own
    const last = this.#head.counters[name]
    if (typeof number === 'number' && more.length === 0 && number > (last ?? 0)) {
      return `its counter of ${name} is at ${last ?? 0}, before a row ${number}`
    }
    return undefined
  }

  /** After the last table. */
  end(tables: readonly TableShape[]): string | undefined {
    const { heads, keys, counters } = this.#head
    const saidHeads = heads.map(({ chain, seq, checksum }) => JSON.stringify([chain, seq, checksum]))
    if (!areSame(saidHeads, this.#heads)) return 'its head names other ends of audit chains than its rows'
    const saidKeys = keys.map(({ name, print }) => JSON.stringify([name, print]))
    if (!areSame(saidKeys, this.#keys)) return 'its head names other keys than its rows'
    const names = new Set(tables.map(({ name }) => name))
    const stranger = Object.keys(counters).find((name) => !names.has(name))
    return stranger === undefined
      ? undefined
      : `it has a counter of a table ${JSON.stringify(stranger.slice(0, 100))}`
  }
}

function areSame(a: readonly string[], b: readonly string[]): boolean {
  const known = new Set(b)
  return a.length === b.length && known.size === b.length && a.every((one) => known.has(one))
}

/** As the databases order them: numbers by value, texts by their bytes in UTF-8. */
function compareKeys(a: readonly Cell[], b: readonly Cell[]): number {
  for (const [at, one] of a.entries()) {
    const other = b[at]!
    if (one === other) continue
    if (typeof one === 'number' && typeof other === 'number') return one - other
    return Buffer.compare(Buffer.from(String(one)), Buffer.from(String(other)))
  }
  return 0
}
