import { Problem } from '../../core/errors.ts'
import { holds, type Permission } from '../../core/permissions.ts'

/**
 * Nobody grants what they do not hold (decisions.md, Roles).
 * @throws forbidden, naming the permissions the granter lacks
 */
export function checkMayGrant(held: ReadonlySet<string>, granted: Iterable<string>): void {
  const lacking = [...granted].filter((pair) => !holds(held, pair as Permission)).sort()
  if (lacking.length === 0) return
  throw new Problem('forbidden', `Cannot assign permission not held by caller: ${lacking.join(', ')}`, {
    details: { lacking },
  })
}
