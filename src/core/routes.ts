import type { Endpoint, Method } from './endpoint.ts'

export type NamedEndpoint = { name: string; entry: Endpoint }

const inParts = (path: string): string[] => path.split('/').filter((part) => part !== '')

/**
 * Normalizes a path as a person may write it: with the address or the prefix, a query string, a trailing slash.
 */
export function normalizePath(written: string): string {
  const path = written.replace(/^https?:\/\/[^/]+/i, '').replace(/[?#].*$/s, '')
  return `/${inParts(path.replace(/^\/?api\/v1(?=\/|$)/, '')).join('/')}`
}

/** The entry that answers a request; a literal path takes precedence over one with a parameter. */
export function findRoute(
  entries: readonly NamedEndpoint[],
  method: Method,
  written: string,
): NamedEndpoint | undefined {
  const wanted = inParts(normalizePath(written))
  const fits = entries.filter(({ entry }) => {
    const parts = inParts(entry.path)
    const same = (part: string, i: number) => part.startsWith(':') || part === wanted[i]
    return entry.method === method && parts.length === wanted.length && parts.every(same)
  })
  const parameters = ({ entry }: NamedEndpoint) =>
    inParts(entry.path).map((part) => (part.startsWith(':') ? 1 : 0))
  // Compared segment by segment: the first segment that is literal in only one of them decides.
  return fits.sort((a, b) => (parameters(a).join('') < parameters(b).join('') ? -1 : 1))[0]
}
