import { boolean, integer, string } from '@oclif/core/flags'
import { maxChanges } from '../../configuration/contract.ts'
import { usageError } from '../exit-codes.ts'

/** Of the commands that read files with variables. */
export const variableFlags = {
  env: string({
    description: 'Variable that files may read, besides SVC_CONFIG_*; repeatable',
    helpValue: 'NAME',
    multiple: true,
    multipleNonGreedy: true,
    parse: async (name) => {
      if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name
      throw usageError('--env takes the name of a variable, without its value', '--env DOMAIN')
    },
  }),
}

/** As of the commands that the contract describes. */
export const partnerFlag = {
  partner: string({ description: 'Of this partner; for system scope', helpValue: 'PARTNER' }),
}

/** Of the commands that plan and never apply. */
export const withoutSecretsFlag = {
  'without-secrets': boolean({
    description: 'Leave out secrets whose variables are not set, and say which: they are not compared',
  }),
}

/** What the commands that plan have in common. */
export const planFlags = {
  ...variableFlags,
  ...partnerFlag,
  set: string({
    description: 'Set of files that owns the objects; objects of another set are never touched',
    helpValue: 'NAME',
    default: 'default',
  }),
  adopt: boolean({ description: 'Take over objects that exist and that no set owns' }),
  prune: boolean({ description: 'Delete objects of the set that no file has any more' }),
  'prune-limit': integer({
    description:
      'Most deletions of a kind; by default a tenth of the objects that the set owns, and at least 1',
    helpValue: 'N',
    min: 1,
    max: maxChanges,
    dependsOn: ['prune'],
  }),
}

/** A saved plan has its own: others would be left out of account. @throws usageError */
export function checkFlagsOfSavedPlan(named: readonly string[]): void {
  const own = ['org', ...Object.keys(planFlags)].filter((name) => named.includes(name))
  if (own.length === 0) return
  const flags = own.map((name) => `--${name}`).join(', ')
  throw usageError(
    `A saved plan is applied as it was planned: --plan takes no ${flags}`,
    'svc config plan FILE --out PLAN plans with other flags',
  )
}
