import { string } from '@oclif/core/flags'
import type { ReplyOf } from '../core/endpoint.ts'
import type { trustPolicies } from '../trust/contract.ts'
import { usage } from './exit.ts'
import type { FlagSet } from './flags.ts'
import { escapeToOneLine } from './table.ts'
import type { View } from './view.ts'

/** `--claim name=value` in place of the object of claims, which a new policy has to have. */
export const saidByClaims = (isNew: boolean): NonNullable<View['instead']> => ({
  fields: ['claims'],
  flags: {
    claim: string({
      description: `${isNew ? '(required) ' : ''}What a token has to say, name=value, to the letter; all of them count`,
      helpValue: 'CLAIM',
      multiple: true,
      multipleNonGreedy: true,
    }),
  } as unknown as FlagSet,
  async values({ claim }) {
    if (claim === undefined && isNew) throw usage('Missing --claim', '--claim repository_id=74291847')
    return { claims: claim === undefined ? undefined : claimsFrom(claim as string[]) }
  },
})

function claimsFrom(said: readonly string[]): Record<string, string> {
  const claims = new Map<string, string>()
  for (const one of said) {
    const equals = one.indexOf('=')
    if (equals < 1) throw usage(`--claim takes name=value, not "${one}"`, '--claim repository_id=74291847')
    const name = one.slice(0, equals)
    if (claims.has(name)) throw usage(`--claim ${name} is said twice`, 'a token says each claim once')
    claims.set(name, one.slice(equals + 1))
  }
  return Object.fromEntries(claims)
}

type Tried = ReplyOf<typeof trustPolicies.test>

/** What was looked at, a line each. */
export function checkLines(reply: Record<string, unknown>): string {
  const { accepted, checks } = reply as Tried
  const width = Math.max(...checks.map(({ check }) => escapeToOneLine(check).length))
  const lines = checks.map(
    ({ check, ok, message }) =>
      `${ok ? 'ok    ' : 'failed'}  ${escapeToOneLine(check).padEnd(width)}  ${escapeToOneLine(message)}`,
  )
  return `${lines.join('\n')}\n${accepted ? 'A job signs in with it' : 'No job signs in with it'}\n`
}

export const isAccepted = (reply: Record<string, unknown>): boolean => reply.accepted === true
