import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path/posix'
import { fileURLToPath } from 'node:url'

/** A source file: its path from the root of the repository, and its text. */
export type Source = { path: string; text: string }

export type Import = {
  /** The path from the root for our own file, else the package specifier. */
  target: string
  ours: boolean
  typeOnly: boolean
  /** Imported by `import()` in a function, so that it is loaded only when that runs. */
  lazy: boolean
}

export const root = fileURLToPath(new URL('../../', import.meta.url))

/** All source files of the product. */
export function productSources(): Source[] {
  const paths = globSync('{src,commands,daemon,migrations}/**/*.ts', { cwd: root }).sort()
  return paths.map((path) => ({
    path: path.replaceAll('\\', '/'),
    text: readFileSync(join(root, path), 'utf8'),
  }))
}

const statement = /^[ \t]*(import|export)\b(\s+type\b)?([^'"`;]*?)\bfrom\s+['"]([^'"]+)['"]/gm
const bare = /^[ \t]*import\s+['"]([^'"]+)['"]/gm
const dynamic = /(typeof\s+)?\bimport\(\s*(?:['"]([^'"]+)['"]|([^)\s]))/g

/** TypeScript 7 has no API, so imports are parsed from the text, in the forms that are in use. */
export function importsOf({ path, text }: Source): Import[] {
  const code = withoutComments(text)
  const found: Import[] = []
  for (const [, , type, names = '', from = ''] of code.matchAll(statement)) {
    found.push(resolved(path, from, { typeOnly: Boolean(type) || onlyTypes(names), lazy: false }))
  }
  for (const [, from = ''] of code.matchAll(bare)) {
    found.push(resolved(path, from, { typeOnly: false, lazy: false }))
  }
  for (const [, typeOf, from, computed] of code.matchAll(dynamic)) {
    const target = from ?? `a computed import (${computed}…)`
    found.push(resolved(path, target, { typeOnly: Boolean(typeOf), lazy: true }))
  }
  return found
}

function resolved(path: string, from: string, how: { typeOnly: boolean; lazy: boolean }): Import {
  const ours = from.startsWith('.')
  return { target: ours ? join(dirname(path), from) : from, ours, ...how }
}

/** `{ type A, type B }` */
function onlyTypes(names: string): boolean {
  const inner = /^\s*\{([^}]*)\}\s*$/.exec(names)?.[1]
  const listed = (inner ?? '').split(',').filter((name) => name.trim() !== '')
  return listed.length > 0 && listed.every((name) => /^\s*type\s/.test(name))
}

/** Replaces comments by blanks, so that quotes in them do not matter. */
export function withoutComments(text: string): string {
  const blocks = text.replace(/^[ \t]*\/\*[\s\S]*?\*\//gm, (comment) => comment.replace(/[^\n]/g, ' '))
  return blocks.replace(/^[ \t]*\/\/.*$/gm, '').replace(/\s\/\/ .*$/gm, '')
}

/** Import cycles, each as a list of paths. Lazy and type imports count too. */
export function cyclesOf(sources: readonly Source[]): string[][] {
  const graph = new Map(
    sources.map((source) => [
      source.path,
      importsOf(source)
        .filter((it) => it.ours)
        .map((it) => it.target),
    ]),
  )
  const state = new Map<string, 'open' | 'done'>()
  const trail: string[] = []
  const cycles: string[][] = []
  const visit = (path: string): void => {
    if (state.get(path) === 'done') return
    if (state.get(path) === 'open') {
      cycles.push([...trail.slice(trail.indexOf(path)), path])
      return
    }
    state.set(path, 'open')
    trail.push(path)
    for (const target of graph.get(path) ?? []) visit(target)
    trail.pop()
    state.set(path, 'done')
  }
  for (const path of graph.keys()) visit(path)
  return cycles
}
