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
