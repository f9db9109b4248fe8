import { afterAll, describe, expect, it } from 'vitest'
import { readConfiguration } from '../../src/cli/config/files.ts'
import { exportedYaml, mergedYaml } from '../../src/cli/config/yaml.ts'
import { Home } from './run.ts'

const home = new Home()
afterAll(() => home.remove())

type Sections = Record<string, Record<string, unknown>[]>
const merge = (text: string, document: Sections) =>
  mergedYaml({ file: 'f.yaml', text, document: document as never, allowed: [] })

describe('an export', () => {
  it('is read as what was exported, whatever keys are called', async () => {
    const names = [
      '<<',
      '1',
      '007',
      '0x1F',
      '1e3',
      '.nan',
      'null',
      '~',
      '',
      'true',
      '*a',
      '&a',
      '!a',
      '?',
      '- a',
      '2027-12-31',
    ]
    const settings = Object.fromEntries(names.map((name) => [name, { [name]: [name] }]))
    const document = { sites: [{ name: 'S', settings }] }
    const text = exportedYaml({ document, uncovered: [] } as never)
    expect((await readConfiguration([home.write('all.yaml', text)], {})).document).toEqual(document)
  })
})

describe('mergedYaml', () => {
  it('keeps a key << apart from a merge key', () => {
    const text = `sites:
  - { name: S, settings: &s { "<<": { a: 1 } } }
  - { name: T, settings: { <<: *s, b: 1 } }
`
    const settings = { '<<': { a: 1 } }
    const document = {
      sites: [
        { name: 'S', settings },
        { name: 'T', settings: { ...settings, b: 1 } },
      ],
    }
    expect(merge(text, document)).toBe(text)
    const fresh = { sites: [...document.sites, { name: 'U', settings }] }
    expect(merge(text, fresh)).toContain('"<<":\n        a: 1\n')
  })
})
