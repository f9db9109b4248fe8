import type { Instant } from '../src/core/time.ts'
import type { Lockout } from '../src/identity/password-guard/rules.ts'
import { countGuardedAccounts } from '../src/identity/password-guard/store.ts'
import type { Db } from '../src/storage/open.ts'
import type { Metric } from './metrics.ts'

/** Counts the passwords that this process looked at for nothing: whoever sent them had tried too many. */
export class SignInWatch {
  readonly #stopped = new Map<Lockout['reason'], number>([
    ['network_stopped', 0],
    ['proof_required', 0],
  ])

  add(reason: Lockout['reason']): void {
    this.#stopped.set(reason, (this.#stopped.get(reason) ?? 0) + 1)
  }

  async metrics(db: Db, now: Instant): Promise<Metric[]> {
    return [
      {
        name: 'svc_passwords_stopped_total',
        kind: 'counter',
        help: 'Passwords that this process gave no answer to, by why: too many wrong ones from there, or from everywhere.',
        values: [...this.#stopped].map(([reason, value]) => ({ labels: { reason }, value })),
      },
      {
        name: 'svc_accounts_guarded',
        kind: 'gauge',
        help: 'Accounts of which strangers need more than the password, because very many wrong ones were tried.',
        values: [{ value: await countGuardedAccounts(db, now) }],
      },
    ]
  }
}
