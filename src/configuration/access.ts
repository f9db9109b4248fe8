import type { Endpoint } from '../core/endpoint.ts'
import { Problem } from '../core/errors.ts'
import type { Caller } from '../handler.ts'
import { kinds, type Section } from './contract.ts'
import type { InnerCalls } from './ports.ts'

/** Why a caller may not call an endpoint; undefined: they may. */
export function refusalOf(calls: InnerCalls, entry: Endpoint, caller: Caller): string | undefined {
  try {
    calls.check(entry, caller)
    return undefined
  } catch (error) {
    if (!(error instanceof Problem)) throw error
    return error.code === 'unauthenticated' ? 'this is not open to API keys' : error.message
  }
}

export const mayRead = (calls: InnerCalls, section: Section, caller: Caller): boolean =>
  refusalOf(calls, kinds[section].list, caller) === undefined

/** A plan shows nothing that the lists do not show the caller. @throws forbidden */
export function checkMayRead(calls: InnerCalls, sections: readonly Section[], caller: Caller): void {
  const refused = sections.flatMap((section) => {
    const why = refusalOf(calls, kinds[section].list, caller)
    return why === undefined ? [] : [`You may not read ${section}: ${why}`]
  })
  if (refused.length > 0) throw new Problem('forbidden', refused.join('; '))
}
