import { string } from '@oclif/core/flags'
import type { ReplyOf } from '../core/endpoint.ts'
import type { trustPolicies } from '../trust/contract.ts'
import type { CommandView } from './command-view.ts'
import { usageError } from './exit-codes.ts'
import type { FlagSet } from './flags.ts'
import { escapeToOneLine } from './table.ts'

/** `--claim name=value` for the object of claims, which a new policy requires. */
export const claimFlags = (isNew: boolean): NonNullable<CommandView['customFlags']> => ({
  fields: ['claims'],
  flags: {
    claim: string({
      description: `${isNew ? '(required) ' : ''}Claim that a token must have, name=value, exactly; all have to match`,
      helpValue: 'CLAIM',
      multiple: true,
      multipleNonGreedy: true,
    }),
  } as unknown as FlagSet,
  async values({ claim }) {
    if (claim === undefined && isNew) throw usageError('Missing --claim', '--claim repository_id=74291847')
    return { claims: claim === undefined ? undefined : parseClaims(claim as string[]) }
  },
})

function parseClaims(said: readonly string[]): Record<string, string> {
  const claims = new Map<string, string>()
  for (const one of said) {
    const equals = one.indexOf('=')
    if (equals < 1)
      throw usageError(`--claim takes name=value, not "${one}"`, '--claim repository_id=74291847')
    const name = one.slice(0, equals)
    if (claims.has(name)) throw usageError(`--claim ${name} is given twice`, 'a token has each claim once')
    claims.set(name, one.slice(equals + 1))
  }
  return Object.fromEntries(claims)
}

type PolicyTestReply = ReplyOf<typeof trustPolicies.test>

/** The checks, one per line. */
export function formatChecks(reply: Record<string, unknown>): string {
  const { accepted, checks } = reply as PolicyTestReply
  const width = Math.max(...checks.map(({ check }) => escapeToOneLine(check).length))
  const lines = checks.map(
    ({ check, ok, message }) =>
      `${ok ? 'ok    ' : 'failed'}  ${escapeToOneLine(check).padEnd(width)}  ${escapeToOneLine(message)}`,
  )
  return `${lines.join('\n')}\n${accepted ? 'A job signs in with it' : 'No job signs in with it'}\n`
}

export const isAccepted = (reply: Record<string, unknown>): boolean => reply.accepted === true
