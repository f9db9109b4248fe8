import { type Counter, Gauge, Registry } from 'prom-client'
import type { Clock } from '../src/core/time.ts'
import type { Lockout } from '../src/identity/password-guard/rules.ts'
import { countGuardedAccounts } from '../src/identity/password-guard/store.ts'
import type { Storage } from '../src/storage/open.ts'
import { addCounter, type StoredMetrics } from './metrics.ts'

const reasons: readonly Lockout['reason'][] = ['network_stopped', 'proof_required']

/** Counts the passwords that this process refuses to verify, because their sender has tried too many wrong ones. */
export class SignInWatch {
  readonly #stopped: Counter<'reason'>
  readonly stored: StoredMetrics

  constructor(storage: Storage, clock: Clock, metrics: Registry) {
    const stopped = {
      name: 'svc_passwords_stopped_total',
      help: 'Passwords that this process refused to check, by reason: too many wrong ones from one address, or from all.',
    }
    this.#stopped = addCounter(metrics, stopped, 'reason', reasons)
    const registry = new Registry()
    const guarded = new Gauge({
      name: 'svc_accounts_guarded',
      help: 'Accounts under attack: clients that are unknown to them need a second proof.',
      registers: [registry],
    })
    const refresh = async () => guarded.set(await countGuardedAccounts(storage.read, clock()))
    this.stored = { registry, refresh }
  }

  add(reason: Lockout['reason']): void {
    this.#stopped.inc({ reason })
  }
}
