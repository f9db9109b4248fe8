import type { ReplyOf } from '../core/endpoint.ts'
import { didYouMean } from '../core/suggest.ts'
import type { auth } from '../identity/contract.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { escapeToOneLine } from './table.ts'

type Membership = ReplyOf<typeof auth.me>['memberships'][number]

/** The membership of an id, slug or name, as `/auth/switch` takes it. */
export function findMembership(
  memberships: readonly Membership[],
  name: string,
  scope?: Membership['scope'],
): { orgId: string } | { partnerId: string } {
  const eligible = memberships.filter((one) => scope === undefined || one.scope === scope)
  const matching = (same: (one: Membership) => boolean) => eligible.filter(same)
  const lower = name.toLowerCase()
  const tiers = [
    matching(({ id }) => id === name),
    matching(({ slug }) => slug === name),
    matching((one) => one.name.toLowerCase() === lower),
  ]
  const found = tiers.find((tier) => tier.length > 0) ?? []
  if (found.length === 1) {
    const { id } = found[0]!
    return found[0]!.scope === 'organization' ? { orgId: id } : { partnerId: id }
  }
  if (found.length > 1) {
    const lines = found.map((one) => `  ${one.id}  ${one.scope} ${escapeToOneLine(one.name)}`)
    throw new CliError(`"${name}" is the name of ${found.length} memberships:\n${lines.join('\n')}`, {
      exit: exitCodes.usage,
      code: 'ambiguous',
      hint: 'use the id',
    })
  }
  const slugs = eligible.map(({ slug }) => slug)
  const hint =
    didYouMean(name, slugs) ??
    (slugs.length > 0
      ? `there are: ${slugs.slice(0, 10).join(', ')}`
      : 'you have none: svc whoami shows where you are')
  throw new CliError(`You have no membership "${name}"`, {
    exit: exitCodes.notFound,
    code: 'not_found',
    hint,
  })
}
