import { type Change, keyOf, kinds, type Plan, type Section } from '../../configuration/contract.ts'
import { ApiError } from '../../core/client.ts'
import { isJsonObject } from '../../core/json.ts'
import type { Path, Variable } from './variables.ts'

/** A text of the files that variables were part of. */
export type SubstitutedText = {
  /** In the document that is sent: section, number of the object, field. */
  path: Path
  text: string
  variables: Variable[]
}

type Objects = Readonly<Record<string, readonly Record<string, unknown>[]>>
type Shown = Pick<Plan, 'changes' | 'left' | 'notCompared' | 'renamedByHand'>

/** What is shown in place of values that came from variables. */
const marker = (names: readonly string[]): string => `(from ${[...new Set(names)].join(', ')})`

/** From this length on a value is looked for in longer texts by its beginning: the service cuts what it shows. */
const longest = 64

/**
 * Keeps values that came from variables out of everything that is printed: a plan becomes a comment on a pull request, or
 * the log of a job, and who reads those may not read the variables.
 */
export class VariableMasker {
  readonly #document: Objects
  readonly #substituted: readonly SubstitutedText[]
  /** What is not to be printed, with what is printed instead; longest first. */
  readonly #texts: readonly { value: string; shown: string }[]
  /** Names, slugs and references to them, as the service returns them. */
  readonly #names = new Map<string, string>()

  constructor(document: Objects, substituted: readonly SubstitutedText[]) {
    this.#document = document
    this.#substituted = substituted
    const texts = substituted
      .flatMap(({ path: [section], text, variables }) => {
        const all = [{ value: text, name: namesOf(variables).join(', ') }, ...variables]
        return [...all, ...all.map(({ value, name }) => ({ value: spelled(section, value), name }))]
      })
      .flatMap(({ value, name }) => [value, value.trim()].map((one) => [one, name] as const))
      .filter(([value]) => value !== '')
    this.#texts = [...new Map(texts)]
      .map(([value, shown]) => ({ value, shown }))
      .toSorted((one, other) => other.value.length - one.value.length)
    for (const { path, text, variables } of substituted)
      if (isName(path))
        for (const name of [text, spelled(path[0], text)]) this.#names.set(name, marker(namesOf(variables)))
  }

  plan<T extends Shown>(plan: T): T {
    if (this.#substituted.length === 0) return plan
    const named = <P extends Pick<Change, 'org' | 'name'>>(one: P): P => ({
      ...one,
      org: this.#name(one.org),
      name: this.#name(one.name),
    })
    return {
      ...plan,
      left: plan.left.map(named),
      changes: plan.changes.map((change) => this.#change(change)),
      ...(plan.notCompared && { notCompared: plan.notCompared.map(named) }),
      ...(plan.renamedByHand && {
        renamedByHand: plan.renamedByHand.map((one) => ({
          ...named(one),
          nameInFiles: this.#name(one.nameInFiles),
        })),
      }),
    }
  }

  #change(change: Change): Change {
    const { section, action, org, name, renamedFrom, warning, refused } = change
    const shown = {
      ...change,
      org: this.#name(org),
      name: this.#name(name),
      renamedFrom: this.#name(renamedFrom),
      ...(warning && { warning: this.text(warning) }),
      refused: refused === null ? null : this.text(refused),
      ...(change.culprits && {
        culprits: change.culprits.map((one) => ({ ...one, by: this.text(one.by) })),
      }),
    }
    // What no file has any more may still hold what a variable says.
    if (action === 'delete') return { ...shown, before: this.#deep(change.before) }
    const markers = this.#markersOf(change)
    const masked = (values: Change['before']) => {
      if (values === null) return null
      const hidden = markers.reduce<unknown>((all, { path, text }) => mask(all, path, text), values)
      // A value that moves to another field is still what the field had before.
      return this.#deep(this.#referring(section, hidden as Record<string, unknown>))
    }
    return { ...shown, before: masked(change.before), after: masked(change.after) }
  }

  /** The fields of an object that hold variables. Lists are hidden whole: their items change places. */
  #markersOf({ section, org, name }: Change): { path: Path; text: string }[] {
    const { key } = kinds[section]
    const all = this.#document[section] ?? []
    const isMeant = (object: Record<string, unknown> = {}) =>
      keyOf(section, object[key]) === name && (object.org === undefined || object.org === org)
    const isKnown = all.some(isMeant)
    const fields = this.#substituted
      .filter(({ path: [where, at] }) => where === section && (!isKnown || isMeant(all[Number(at)])))
      .map(({ path, variables }) => {
        const field = path.slice(2)
        const list = field.findIndex((step) => typeof step === 'number')
        return { path: list < 0 ? field : field.slice(0, list), names: namesOf(variables) }
      })
    return [...Map.groupBy(fields, ({ path }) => JSON.stringify(path)).values()].map((same) => ({
      path: same[0]!.path,
      text: marker(same.flatMap(({ names }) => names)),
    }))
  }

  /** Names of other objects, and the former one of this, may come from variables elsewhere in the files. */
  #referring(section: Section, values: Record<string, unknown>): Record<string, unknown> {
    const { key, fields } = kinds[section]
    const naming = new Set([key, ...fields.filter(({ refersTo }) => refersTo).map(({ name }) => name)])
    const named = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(named)
      return typeof value === 'string' ? this.#name(value) : value
    }
    return Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, naming.has(name) ? named(value) : value]),
    )
  }

  #name<T extends string | null>(name: T): T {
    return (name === null ? null : (this.#names.get(name) ?? name)) as T
  }

  #deep<T>(value: T): T {
    if (isMasked(value)) return value
    if (typeof value === 'string') return this.text(value) as T
    if (Array.isArray(value)) return value.map((item) => this.#deep(item)) as T
    if (!isJsonObject(value)) return value
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#deep(item)])) as T
  }

  /** A text of the service that may quote what it was sent. */
  text(text: string): string {
    const here = this.#texts.filter(({ value }) => text.includes(value.slice(0, longest)))
    let shown = ''
    let from = 0
    // In one pass: what is shown in place of one value may contain another.
    for (let at = 0; here.length > 0 && at < text.length; ) {
      const found = here.find(({ value }) => isAt(text, at, value))
      if (found) {
        shown += text.slice(from, at) + found.shown
        from = at + commonLength(text, at, found.value)
      }
      at = found ? from : at + 1
    }
    return shown + text.slice(from)
  }

  /** A refusal of the service. */
  failure(failure: unknown): unknown {
    if (!(failure instanceof ApiError) || this.#substituted.length === 0) return failure
    return Object.assign(failure, {
      message: this.text(failure.message),
      details: this.#deep(failure.details),
    })
  }
}

const commonLength = (text: string, at: number, value: string): number => {
  let length = 0
  while (length < value.length && text[at + length] === value[length]) length += 1
  return length
}

/** Whether a value, or its beginning, stands at a place. A short one is a part of many words, which say nothing about it. */
function isAt(text: string, at: number, value: string): boolean {
  if (!text.startsWith(value.slice(0, longest), at)) return false
  if (value.length >= 8) return true
  return !/[\p{L}\p{N}]/u.test(`${text[at - 1] ?? ''}${text[at + value.length] ?? ''}`)
}

/** A text as the service returns it where it is what an object of the section is called. */
const spelled = (section: Path[number] | undefined, text: string): string =>
  String(keyOf(section as Section, text))

const namesOf = (variables: readonly Variable[]): string[] => variables.map(({ name }) => name)

/** Whether a path leads to what an object is called, or to what it calls another. */
function isName([section, , field, ...rest]: Path): boolean {
  if (rest.length > 0) return false
  const { key, fields } = kinds[section as Section]
  return [
    'org',
    'renamedFrom',
    key,
    ...fields.filter(({ refersTo }) => refersTo).map(({ name }) => name),
  ].includes(String(field))
}

/** Hides the value at a path, or what stands in its place where the path leads to nothing. */
function mask(value: unknown, [step, ...rest]: Path, text: string): unknown {
  if (step === undefined || !isJsonObject(value)) return text
  if (!Object.hasOwn(value, step)) return value
  return { ...value, [step]: mask(value[step], rest, text) }
}

/** What is shown in place of a value that came from variables, if this is it. */
export const isMasked = (value: unknown): value is string =>
  typeof value === 'string' && /^\(from \$\{(env|file):.*\}\)$/s.test(value)
