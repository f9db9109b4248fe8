import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '../..')
const sources = globSync(
  ['{src,daemon,commands,migrations,test,bin,docs,man}/**/*.{ts,js,md,sh,trip}', '*.{js,ts,md}'],
  { cwd: root },
)

/** Documents cited in a text that are not in the repository, and mentions of a missing specification. */
function strayIn(file: string, text: string): string[] {
  const isThere = (name: string) =>
    [dirname(file), '.', 'docs', 'man'].some((at) => existsSync(join(root, at, name)))
  const named = [...text.matchAll(/(?<![\w/:.*{}])(?:\.\.?\/)?[\w-]+(?:\/[\w.-]+)*\.md\b/g)].map(
    ([name]) => name,
  )
  const spec = [
    ...text.matchAll(/\(spec[,)]|\(spec: |\b[Tt]he spec\b|\(reference: (?:[a-z]|GET|POST|PUT|PATCH|DELETE)/g),
  ].map(([words]) => words)
  return [...named.filter((name) => !isThere(name)), ...spec]
}

describe('a comment, a page or a test', () => {
  it('cites only documents in the repository, or public ones', () => {
    const stray = sources.flatMap((file) =>
      file.endsWith('citations.test.ts')
        ? []
        : strayIn(file, readFileSync(join(root, file), 'utf8')).map((what) => `${file}: ${what}`),
    )
    expect(sources.length).toBeGreaterThan(1000)
    expect(stray).toEqual([])
  })

  it('that cites a missing document would be found', () => {
    expect(strayIn('src/core/x.ts', '/** As agreed (decisions.md, Wire). */')).toEqual(['decisions.md'])
    expect(strayIn('src/core/x.ts', '/** A key (spec, "Keys"), in the order of the spec. */')).toHaveLength(2)
    expect(strayIn('src/core/x.ts', '/** A frame (reference: agent-ws). */')).toHaveLength(1)
    expect(strayIn('src/core/x.ts', '/** See docs/testing.md and AGENTS.md. */')).toEqual([])
  })
})

const pages = globSync(['docs/**/*.md', '{README,AGENTS,CONTRIBUTING}.md'], { cwd: root })
const paths = globSync('{bin,commands,daemon,docs,man,migrations,src,test}/**', { cwd: root })
const code = globSync('{src,daemon,commands,test}/**/*.ts', { cwd: root })
  .filter((file) => !file.endsWith('citations.test.ts'))
  .map((file) => readFileSync(join(root, file), 'utf8'))
const words = new Set(code.flatMap((text) => text.match(/\w+/g) ?? []))

/** Paths and functions between backticks that are not in the repository. A file may be named without its folder. */
function unknownIn(text: string): string[] {
  const spans = [...text.matchAll(/`([^`\n]+)`/g)].map(([, span]) => span!)
  const isThere = (path: string) =>
    existsSync(join(root, path)) ||
    existsSync(join(root, `${path}.ts`)) ||
    paths.some((one) => one.endsWith(`/${path}`))
  const named = spans
    .flatMap((span) => span.split(' '))
    .filter((word) =>
      /^[\w.-]+\.(ts|js|json|md)$|^(bin|commands|daemon|docs|man|migrations|src|test)\//.test(word),
    )
    .filter((word) => !/[<>*]|^-/.test(word))
  const functions = spans.flatMap((span) => [...span.matchAll(/(\w+)\(\)/g)].map(([, name]) => name!))
  return [...named.filter((path) => !isThere(path)), ...functions.filter((name) => !words.has(name))]
}

describe('a page of documentation', () => {
  it('names only files and functions of the repository', () => {
    const unknown = pages.flatMap((page) =>
      unknownIn(readFileSync(join(root, page), 'utf8')).map((name) => `${page}: ${name}`),
    )
    expect(pages.length).toBeGreaterThan(35)
    expect(unknown).toEqual([])
  })

  it('that names something else would be found', () => {
    expect(unknownIn('`src/core/nothing.ts`, `nothing.ts` and `run test/nothing`')).toHaveLength(3)
    expect(unknownIn('`thereIsNone()`, `Program.thereIsNone()`')).toEqual(['thereIsNone', 'thereIsNone'])
    expect(
      unknownIn('`src/core/`, `scope.ts`, `commands/serve`, `src/<capability>/none.ts`, `inScope()`'),
    ).toEqual([])
  })
})

type Machinery = { what: string; claimed: number; lines: number }

const isFarOff = ({ claimed, lines }: Machinery) => Math.abs(claimed - lines) > lines / 5

/** Rows of docs/decisions/performance.md: the lines that they claim, and those of the files that they name. */
function machineryIn(page: string): Machinery[] {
  return page.split('\n').flatMap((row) => {
    const [, what = '', where = '', claim = ''] = row.split('|').map((cell) => cell.trim())
    const claimed = /^(?:in )?(\d+)$/.exec(claim)?.[1]
    if (claimed === undefined) return []
    const files = [...where.matchAll(/`([\w./-]+)`/g)].flatMap(([, path]) =>
      path!.endsWith('/') ? globSync(`${path}**/*.ts`, { cwd: root }) : path!.includes('.') ? [path!] : [],
    )
    const lines = files.map((file) => readFileSync(join(root, file), 'utf8').split('\n').length - 1)
    return [{ what, claimed: Number(claimed), lines: lines.reduce((sum, n) => sum + n, 0) }]
  })
}

describe('the page of performance machinery', () => {
  it('says within a fifth how many lines each costs', () => {
    const rows = machineryIn(readFileSync(join(root, 'docs/decisions/performance.md'), 'utf8'))
    expect(rows.length).toBeGreaterThan(38)
    expect(rows.filter(isFarOff)).toEqual([])
  })

  it('that says something else would be found', () => {
    const row = (lines: string) =>
      `| A queue | \`src/core/scope.ts\` (\`ofOne\`) | ${lines} | Words. | \`http\` |`
    expect(machineryIn(row('in 20')).filter(isFarOff)).toMatchObject([{ what: 'A queue', claimed: 20 }])
    expect(machineryIn(row('35')).filter(isFarOff)).toEqual([])
  })
})

/** The files that the first walk of docs/walkthrough.md goes through: those in bold. */
function walkedFiles(page: string): string[] {
  const [walk = ''] = page.split('\n## One audit entry')
  return [...walk.matchAll(/\*\*`([^`]+)`\*\*/g)].map(([, file]) => file!)
}

describe('the walk of svc keys create', () => {
  it('goes through at most 20 files', () => {
    const files = walkedFiles(readFileSync(join(root, 'docs/walkthrough.md'), 'utf8'))
    expect(files).toEqual([...new Set(files)])
    expect(files.length).toBeGreaterThan(15)
    expect(files.length).toBeLessThanOrEqual(20)
  })

  it('counts each file in bold', () => {
    expect(walkedFiles('**`a.ts`** calls `b.ts`.\n\n## One audit entry\n\n**`c.ts`**')).toEqual(['a.ts'])
  })
})
