import type { Endpoint } from '../core/endpoint.ts'
import { Problem, refusalText } from '../core/errors.ts'
import type { Caller } from '../handler.ts'
import { type Kind, kinds, type Section } from './contract.ts'
import type { InnerCalls } from './ports.ts'
import type { Values } from './rules.ts'

/** Why a caller may not call an endpoint; undefined: they may. */
export function refusalOf(calls: InnerCalls, entry: Endpoint, caller: Caller): string | undefined {
  try {
    calls.check(entry, caller)
    return undefined
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    return error.code === 'unauthenticated'
      ? 'this is not open to API keys'
      : refusalText(error.message, error.extras.details)
  }
}

/** The endpoints of a kind that are for this caller. */
export function entriesFor(
  { list, update, ofSystem }: Kind,
  caller: Caller,
): { list: Endpoint; update: Endpoint } {
  const isOfSystem = 'scope' in caller && caller.scope.kind === 'system'
  return isOfSystem && ofSystem ? ofSystem : { list, update }
}

/** Why a caller may not read a section; undefined: they may. */
export const readRefusal = (calls: InnerCalls, section: Section, caller: Caller): string | undefined =>
  refusalOf(calls, entriesFor(kinds[section], caller).list, caller)

export const mayRead = (calls: InnerCalls, section: Section, caller: Caller): boolean =>
  readRefusal(calls, section, caller) === undefined

/** Whether a caller may change objects of a section: which, their endpoint decides. */
export const mayChangeSome = (calls: InnerCalls, section: Section, caller: Caller): boolean =>
  refusalOf(calls, entriesFor(kinds[section], caller).update, caller) === undefined

/** A plan shows nothing that the lists do not show the caller. @throws forbidden */
export function checkMayRead(calls: InnerCalls, sections: readonly Section[], caller: Caller): void {
  const refused = sections.flatMap((section) => {
    const why = readRefusal(calls, section, caller)
    return why === undefined ? [] : [`You may not read ${section}: ${why}`]
  })
  if (refused.length > 0) throw new Problem('forbidden', refused.join('; '))
}

/**
 * The fields of a section that an endpoint of their own shows and that the caller may read, and whether the objects name them.
 * @throws forbidden when they name one that the caller may not read
 */
export function readableParts(
  calls: InnerCalls,
  section: Section,
  caller: Caller,
  objects: readonly Values[],
): { field: string; isRequested: boolean }[] {
  const { parts = [] } = kinds[section]
  return parts.flatMap(({ field, shownBy }) => {
    if (!shownBy) return []
    const refused = refusalOf(calls, shownBy, caller)
    const isRequested = objects.some((object) => Object.hasOwn(object, field))
    if (refused === undefined) return [{ field, isRequested }]
    if (isRequested) throw new Problem('forbidden', `You may not read ${section}.${field}: ${refused}`)
    return []
  })
}
