import type { Resource } from '../../core/schema.ts'
import { readConfig } from '../config-file.ts'
import { helpSubjects } from '../manual.ts'
import type { Program } from '../program.ts'
import { type Candidate, type Candidates, candidatesFor } from './candidates.ts'
import type { Shell } from './scripts.ts'
import { insertion, typedWords } from './typed-words.ts'

/** The lines that a completion script offers for the words or the line before the cursor. */
export async function complete(program: Program, shell: Shell, given: readonly string[]): Promise<string[]> {
  const typed = typedWords(shell, given)
  const candidates = candidatesFor(program, helpSubjects(), typed)
  const { fixed, lookUp, prefix } = candidates
  if (lookUp === 'files') return [':files']
  const begun = typed.current.slice(prefix.length)
  const found = lookUp ? await lookedUp(program, lookUp, candidates, begun) : []
  const isDescribed = shell !== 'bash'
  // zsh completes behind the `=` itself.
  const before = shell === 'zsh' ? '' : prefix
  return [...fixed, ...found]
    .filter(({ value }) => value.startsWith(begun))
    .flatMap(({ value, description }) => {
      const text = insertion(shell, before + value, typed)
      if (text === undefined) return []
      return [isDescribed && description ? `${text}\t${description.split('\n')[0]}` : text]
    })
}

async function lookedUp(
  program: Program,
  what: 'contexts' | { records: Resource },
  { connection }: Candidates,
  current: string,
): Promise<Candidate[]> {
  if (what === 'contexts') {
    return Object.entries(readConfig().contexts).map(([value, { url }]) => ({ value, description: url }))
  }
  const { recordNames } = await import('./record-names.ts')
  return recordNames({ resource: what.records, current, connection, version: program.version })
}
