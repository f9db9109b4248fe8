import { describe, expect, it } from 'vitest'
import { VariableMasker } from '../../src/cli/config/variable-masking.ts'
import { type Change, kinds, sections } from '../../src/configuration/contract.ts'

/** Fields that name other objects, with the section that they name. */
const references = sections.flatMap((section) =>
  kinds[section].fields.flatMap(({ name, isList, refersTo }) =>
    refersTo === undefined ? [] : [{ section, field: name, isList, refersTo }],
  ),
)

describe('VariableMasker', () => {
  it('knows fields with lists of names', () => {
    const lists = references.filter(({ isList }) => isList).map(({ field }) => field)
    expect(lists.toSorted()).toEqual(expect.arrayContaining(['deviceGroups', 'orgs', 'sites']))
  })

  it('hides the value of a variable that has moved to another field', () => {
    const variable = `\${env:SVC_CONFIG_TOKEN}`
    const value = 'super-secret-value-1'
    const hidden = new VariableMasker({ scripts: [{ name: 'one', description: 'plain', category: value }] }, [
      { path: ['scripts', 0, 'category'], text: value, variables: [{ name: variable, value }] },
    ])
    const change: Change = {
      section: 'scripts',
      action: 'update',
      org: null,
      name: 'one',
      id: null,
      renamedFrom: null,
      before: { description: value, category: null },
      after: { description: 'plain', category: value },
      ends: null,
      warning: null,
      refused: null,
    }
    const [shown] = hidden.plan({ changes: [change], left: [] }).changes
    expect(shown).toMatchObject({
      before: { description: variable },
      after: { description: 'plain', category: `(from ${variable})` },
    })
  })

  it.each(references)(
    'hides a name from a variable in $section.$field',
    ({ section, field, isList, refersTo }) => {
      const variable = `\${env:SVC_CONFIG_NAME}`
      const { key } = kinds[refersTo]
      const named = [{ org: 'bakery', [key]: 'nightingale' }]
      const hidden = new VariableMasker({ [section]: [], [refersTo]: named }, [
        {
          path: [refersTo, 0, key],
          text: 'nightingale',
          variables: [{ name: variable, value: 'nightingale' }],
        },
      ])
      const referring = (name: string) => ({ [field]: isList ? [name, 'plain'] : name })
      const change: Change = {
        section,
        action: 'update',
        org: 'bakery',
        name: 'one',
        id: null,
        renamedFrom: null,
        before: referring('nightingale'),
        after: referring('other'),
        ends: null,
        warning: null,
        refused: null,
      }
      const plan = hidden.plan({ changes: [change], left: [] })
      expect(plan.changes[0]).toMatchObject({
        before: referring(`(from ${variable})`),
        after: referring('other'),
      })
    },
  )
})
