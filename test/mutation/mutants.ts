import { readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../', import.meta.url))

/** One tenancy predicate that lets everything through. */
export type Mutant = { file: string; line: number; index: number; predicate: string }

/** The predicates that narrow a query to what its caller may see (src/storage/query/scope.ts). */
const predicate =
  /\b(inScope|inScopeHistory|inScopeHistoryUnindexed|inTenants|inSites|inGroups|isScopedGroup|inPartner)\(\s*(?:ofOne\(\s*)?scope\b/g

/** Every predicate of every file outside the storage. */
export function mutants(): Mutant[] {
  return sources(join(root, 'src')).flatMap((path) => {
    const text = readFileSync(path, 'utf8')
    return [...text.matchAll(predicate)].map((match, index) => ({
      file: relative(root, path),
      line: text.slice(0, match.index).split('\n').length,
      index,
      predicate: match[1]!,
    }))
  })
}

/** The text of a file with one of its predicates asked on behalf of the system, which sees every row. */
export function mutated(text: string, index: number): string {
  let n = 0
  return text.replace(predicate, (call) =>
    n++ === index ? call.replace(/scope$/, `{ kind: 'system' }`) : call,
  )
}

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return entry.name === 'storage' ? [] : sources(path)
    return entry.name.endsWith('.ts') ? [path] : []
  })
}
