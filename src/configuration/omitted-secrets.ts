import type { Fault } from '../core/errors.ts'
import { type Kind, kinds, type Plan, type Section } from './contract.ts'
import type { ConfigurationRequest, DesiredObject, OmittedSecret, Values } from './rules.ts'

/** What a plan goes without, by section and number of the object, and the faults of what it cannot go without. */
export function omittedSecretsOf({ document, withoutSecrets = [] }: ConfigurationRequest): {
  of: (section: Section, at: number) => string[]
  faults: Fault[]
} {
  const isGuarded = ({ section, field }: OmittedSecret) =>
    kinds[section].fields.some(({ name, guard }) => name === field && guard !== undefined)
  const isAbsent = ({ section, object, field }: OmittedSecret) => {
    const found = document[section]?.[object]
    return found !== undefined && !Object.hasOwn(found, field)
  }
  const byObject = Map.groupBy(withoutSecrets, ({ section, object }) => `${section} ${object}`)
  return {
    of: (section, at) => (byObject.get(`${section} ${at}`) ?? []).map(({ field }) => field),
    faults: withoutSecrets.flatMap((one, at) =>
      isGuarded(one) && isAbsent(one)
        ? []
        : [{ path: `body.withoutSecrets.${at}`, message: 'is not a secret that an object leaves out' }],
    ),
  }
}

/** The same by the names of the objects. */
export function notComparedOf(
  { withoutSecrets = [] }: ConfigurationRequest,
  items: readonly DesiredObject[],
): NonNullable<Plan['notCompared']> {
  const byPath = new Map(items.filter(({ omitted }) => omitted.length > 0).map((item) => [item.path, item]))
  return withoutSecrets.map(({ section, object, field }) => {
    const { org = null, key } = byPath.get(`body.document.${section}.${object}`)!
    return { section, org, name: key, field }
  })
}

/**
 * The object with what stands for the secrets that it leaves out: where there is none yet, it will have one. Where there is
 * one, nobody can say whether it differs.
 */
export function withPlaceholders(kind: Kind, item: DesiredObject, record: Values | undefined): DesiredObject {
  const { placeholders = {} } = kind
  const set = kind.fields.filter(
    ({ name, field }) =>
      item.omitted.includes(name) && placeholders[name] !== undefined && (record?.[field] ?? null) === null,
  )
  if (set.length === 0) return item
  return {
    ...item,
    values: { ...item.values, ...Object.fromEntries(set.map(({ name }) => [name, placeholders[name]])) },
  }
}
