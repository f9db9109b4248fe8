import { CliError, exitCodes } from '../exit-codes.ts'
import type { ShownPlan } from './format.ts'

/**
 * Nobody is asked about what is going to be refused. How much may be deleted is not about the caller: the service says which
 * flag it takes.
 * @throws CliError
 */
export function checkPlanAllowed({ changes }: ShownPlan): void {
  const reasons = changes.flatMap(({ refused }) => refused ?? [])
  if (reasons.length === 0 || reasons.some((reason) => reason.includes('--prune-limit'))) return
  const count = reasons.length === 1 ? '1 change is' : `${reasons.length} changes are`
  throw new CliError(`Nothing is applied, as ${count} refused: ${[...new Set(reasons)].join('; ')}`, {
    exit: exitCodes.forbidden,
    code: 'forbidden',
    hint: reasons.some((reason) => reason.startsWith('MFA required'))
      ? 'svc mfa setup, then svc mfa enable; whoever has a second factor signs in with it: svc login --otp CODE'
      : 'svc can-i ACTION RESOURCE says what you may do; --plan FILE applies what somebody else has planned',
  })
}
