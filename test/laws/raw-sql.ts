import { type Source, withoutComments } from './imports.ts'

/** Files outside the storage that may contain raw SQL, with the reason. */
export const allowed: Readonly<Record<string, string>> = {}

/** Lines of raw SQL outside src/storage and migrations. */
export function rawSqlIn(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path, text }) => {
    if (path.startsWith('src/storage/') || path.startsWith('migrations/') || path in allowed) return []
    const lines = withoutComments(text).split('\n')
    return lines.flatMap((line, i) =>
      /\bsql(<[^`]*>)?`|\bsql\.(raw|lit)\(/.test(line) ? [`${path}:${i + 1}`] : [],
    )
  })
}
