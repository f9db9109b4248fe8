import { pino } from 'pino'
import { Registry } from 'prom-client'
import { createAuthenticator } from '../../daemon/actor.ts'
import { AgentAuditBuffer } from '../../daemon/agent-audit-buffer.ts'
import { buildApp } from '../../daemon/app.ts'
import { BodyBudget } from '../../daemon/body-budget.ts'
import { ConcurrencyLimit } from '../../daemon/concurrency-limit.ts'
import { FairShareKeys } from '../../daemon/fair-share-keys.ts'
import { createKeyAuthenticator } from '../../daemon/key-actor.ts'
import { KeyMeter } from '../../daemon/key-meter.ts'
import { Limiter } from '../../daemon/limiter.ts'
import { QuotaCheck } from '../../daemon/quotas.ts'
import { ReadQueryQueue } from '../../daemon/read-query-queue.ts'
import { SharedLimiter } from '../../daemon/shared-limiter.ts'
import { createCipher } from '../../src/core/cipher.ts'
import type { Contract } from '../../src/core/endpoint.ts'
import { defaultLimits, type Limits } from '../../src/core/limits.ts'
import { defaultQuotas } from '../../src/core/quotas.ts'
import { systemClock } from '../../src/core/time.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import { workloadTokens } from '../../src/trust/tokens.ts'
import { type TestService, testSecrets } from '../harness.ts'

/** Serves a test contract on the database of a running service. */
export async function serveContract(
  { storage }: TestService,
  contract: Contract,
  handlersOf: Record<string, Record<string, unknown>>,
  maxAtOnce = 1000,
): Promise<{ url: string; close(): Promise<void> }> {
  const limits = Object.fromEntries(Object.keys(defaultLimits).map((name) => [name, undefined])) as Limits
  const limiter = new Limiter(limits)
  const secret = testSecrets.JWT_SECRET
  const tokens = { access: createAccessTokens(secret), workloads: workloadTokens(secret) }
  const metrics = new Registry()
  const on = {
    storage,
    actors: createAuthenticator(
      storage,
      () => tokens,
      limiter,
      createKeyAuthenticator(storage, new KeyMeter(storage), limiter),
      true,
    ),
    limiter,
    sharedLimiter: new SharedLimiter({
      storage,
      limits,
      clock: systemClock,
      pepper: testSecrets.MFA_RECOVERY_CODE_PEPPER,
      otherPepper: undefined,
    }),
    agentEntries: new AgentAuditBuffer(limiter, metrics, { closure: undefined }),
    readQueries: new ReadQueryQueue(
      storage,
      { timeoutMs: 10_000, atOnce: 6, perTenant: 4, perCaller: 2, waitMs: 5000 },
      metrics,
    ),
    quotas: new QuotaCheck(defaultQuotas, metrics),
    bodies: new BodyBudget({ whole: 2 ** 30, perCaller: 2 ** 30 }, 'requests', metrics),
    replies: new BodyBudget({ whole: 2 ** 30, perCaller: 2 ** 30 }, 'replies', metrics),
    work: new ConcurrencyLimit(maxAtOnce, metrics),
    fairShareKeys: new FairShareKeys(storage),
    cipher: createCipher([testSecrets.APP_ENCRYPTION_KEY]),
    clock: systemClock,
    origins: new Set<string>(),
    clientOf: (ip: string) => ({ ip, https: false, isLocal: () => false }),
  }
  const readiness = async () => ({ ready: true, checks: {} })
  const about = { version: '0', log: pino({ level: 'silent' }), readiness, contract }
  const app = buildApp(handlersOf, on, about)
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url, close: async () => void (await app.close()) }
}
