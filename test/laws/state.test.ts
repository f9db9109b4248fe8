import { globSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Registry } from 'prom-client'
import { describe, expect, it, vi } from 'vitest'
import type { WebSocket } from 'ws'
import { z } from 'zod'
import { BodyBudget } from '../../daemon/body-budget.ts'
import { ConcurrencyLimit } from '../../daemon/concurrency-limit.ts'
import { AgentConnection } from '../../daemon/gateway/agent-connection.ts'
import { AgentConnections } from '../../daemon/gateway/agent-connections.ts'
import { Limiter } from '../../daemon/limiter.ts'
import { readAuditThrottle } from '../../daemon/read-audit.ts'
import { api } from '../../src/api.ts'
import { type Contract, endpoint, entriesOf, publicAccess } from '../../src/core/endpoint.ts'
import { defaultLimits, type LimitName, type Limits, type ProcessLimit } from '../../src/core/limits.ts'
import { currentFairShareKey } from '../../src/storage/fair-queue.ts'
import { openMigrated } from '../databases.ts'
import { startService } from '../harness.ts'
import { serveContract } from './serve-contract.ts'
import { Line } from './wire.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/**
 * Every long-lived map, set and list, by file and name, with its bound. `work`: at most one
 * per request in progress, which are bounded (WorkBound); `code`: as many as are written in the code.
 */
const bounds: Record<string, string> = {
  'daemon/agent-audit-buffer.ts #gathered': '10,000',
  'daemon/agent-event-buffer.ts #waiting': '100,000',
  'daemon/backup/chain-check.ts #anchors': 'chains of a backup, while svc db restore reads it',
  'daemon/backup/chain-check.ts #heads': 'the same',
  'daemon/backup/chain-check.ts #notes': 'the same',
  'daemon/backup/chain-check.ts #seen': 'the same',
  'daemon/backup/chain-check.ts #successions': 'signing keys of a backup',
  'daemon/backup/head-check.ts #heads': 'chains of a backup, while svc db restore reads it',
  'daemon/backup/head-check.ts #keys': 'the same: one for each key of the service',
  'daemon/backup/read-archive.ts #batch': '500 rows of a backup',
  'daemon/backup/read-archive.ts #partial': '64 MiB, the longest line of a backup',
  'daemon/body-budget.ts #byCaller': 'callers with a body in flight',
  'daemon/connection-limit.ts #byAddress': 'addresses with an open connection',
  'daemon/database-watch.ts #counts': 'code',
  'daemon/database-watch.ts #saidUntil': 'code',
  'daemon/gateway/agent-connection.ts #waiting': '8',
  'daemon/gateway/agent-connection.ts #owed': '100',
  'daemon/gateway/agent-connections.ts #byDevice': 'open connections',
  'daemon/gateway/agent-connections.ts #asked': '10,000',
  'daemon/hourly-throttle.ts #remembered': '10,000',
  'daemon/key-meter.ts #leases': 'API keys that were used in the last minute',
  'daemon/key-meter.ts #uses': 'API keys that were used in the last minute',
  'daemon/loops.ts #all': 'code',
  'daemon/loops.ts #leased': 'code',
  'daemon/limiter.ts #windows': '100,000 of each limit',
  'daemon/secrets/running.ts #waiting': 'code',
  'daemon/shared-limiter.ts #full': '10,000',
  'daemon/shared-limiter.ts #turns': 'work',
  'daemon/integrations/exchange.ts #pieces': 'the largest answer of its request',
  'daemon/integrations/guard.ts parsedRanges': 'code',
  'daemon/quotas.ts #uncounted': '10,000',
  'daemon/read-query-queue.ts #byCaller': 'work',
  'daemon/read-query-queue.ts #byTenant': 'work',
  'daemon/read-query-queue.ts #waiting': 'work',
  'daemon/read-audit.ts #seen': '10,000 of each entry',
  'daemon/fair-share-keys.ts #ofOrgs': '10,000',
  'src/audit/checkpoints/tree-comparer.ts #leaves': 'one tile',
  'src/audit/verifier/verifier.ts #buffered': 'the longest line',
  'src/audit/verifier/verifier.ts #restores': 'those of the header, one line',
  'src/configuration/adoption.ts #adopted': 'objects of one request',
  'src/configuration/deletions.ts #blocked': 'deletions of one request',
  'src/configuration/deletions.ts #early': 'objects of one request',
  'src/configuration/deletions.ts #ended': 'objects of one request',
  'src/configuration/deletions.ts #pruneCandidates': 'code',
  'src/configuration/endings.ts #watched': 'code',
  'src/configuration/plan-results.ts #applied': 'objects of one request, and of its state',
  'src/configuration/plan-results.ts #failed': 'objects of one request',
  'src/configuration/plan-results.ts #changes': 'objects of one request, and of its state',
  'src/configuration/plan-results.ts #renamedByHand': 'objects of one request',
  'src/configuration/plan-results.ts #refusals': 'changes of one request',
  'src/configuration/plan-results.ts #subjects': 'objects of one request, and of its state',
  'src/configuration/plan-results.ts #untried': 'changes of one request',
  'src/configuration/plan-results.ts #ended': 'changes of one request',
  'src/configuration/plan-results.ts #ends': 'deletions of one request',
  'src/configuration/plan-results.ts #faults': 'fields of one request',
  'src/configuration/plan-results.ts #desired': 'objects of one request',
  'src/configuration/plan-results.ts #left': '20,000 of each section, for one request',
  'src/configuration/key-losses.ts #before': 'API keys of the people whom one request changes',
  'src/configuration/key-losses.ts #now': 'the same',
  'src/configuration/key-losses.ts #takenBy': 'the same',
  'src/configuration/naming.ts #names': 'objects of one request',
  'src/configuration/naming.ts #renamed': 'the same',
  'src/configuration/naming.ts #restored': 'changes of one apply',
  'src/configuration/owners.ts #nameChanges': 'objects of one request, and of its state',
  'src/configuration/owners.ts #owned': 'code',
  'src/configuration/planner.ts #made': 'objects of one request',
  'src/configuration/planner.ts #resolvedIds': 'objects of one request',
  'src/configuration/planner.ts #missing': 'objects of one set',
  'src/configuration/planner.ts #referred': '20,000 of each section, for one request',
  'src/configuration/state.ts #aside': 'objects of one request',
  'src/configuration/state.ts #dereferenced': 'references of the objects of one request',
  'src/configuration/state.ts #made': 'objects of one request',
  'src/configuration/state.ts #byName': '20,000 of each section, for one request',
  'src/configuration/state.ts #parts': 'code',
  'src/configuration/state.ts #refused': 'objects of one request',
  'src/configuration/state.ts #sections': 'code',
  'src/configuration/state.ts #stillReferred': 'references of the objects of one request',
  'src/configuration/state.ts #undone': 'objects of one request',
  'src/core/re2.ts judgments': '1000',
  'src/core/re2.ts ready': '100',
  'src/core/schema.ts timezones': 'the names of time zones that the system knows, some 700',
  'src/devices/windows/rules.ts computed': '10,000 windows, the first made leaves first',
  'src/live/replica-relay.ts #answering': 'commands under way on open connections, 8 each',
  'src/live/replica-relay.ts #open': 'work',
  'src/logs/quota.ts #shares': 'organizations that have too many logs, added up anew each time',
  'src/sso/token-verifier.ts #cached': '500',
  'src/sso/token-verifier.ts #pending': 'work',
  'src/storage/before-commit.ts #deferred': 'writes of one batch',
  'src/storage/leases.ts #held': 'code',
  'src/storage/sqlite/group-commit.ts #queue': 'work',
  'src/storage/sqlite/group-commit.ts #waiting': 'work',
  'src/storage/fair-queue.ts #byGroup': 'work',
  'src/storage/fair-queue.ts #children': 'work',
  'daemon/concurrency-limit.ts #byDevice': 'work',
  'daemon/concurrency-limit.ts #byTenant': 'work',
  'src/storage/query/prepared.ts statements': 'code',
  'src/storage/patterns/characters.ts written': '1000',
  'src/storage/patterns/re2-for-postgres.ts ready': '100',
  'src/storage/sqlite/reader-pool.ts #waiting': 'work',
  'src/storage/sqlite/statement-cache.ts #old': '256',
  'src/storage/sqlite/statement-cache.ts #young': '256',
  'src/trust/issuers.ts #failed': '500',
  'src/trust/issuers.ts #inFlight': 'work',
  'src/webhooks/worker/delivery-worker.ts #ended': 'attempts under way, 1000',
  'src/webhooks/worker/delivery-worker.ts #inFlight': 'attempts under way, 1000',
  'src/identity/passwords/strength.ts #waiting': 'work',
  'src/storage/fair-queue.ts #queue': 'work',
  'src/webhooks/worker/endpoint-queues.ts #waiting': '1000',
  'src/webhooks/worker/endpoint-queues.ts #held': '1000',
  'src/webhooks/worker/endpoint-queues.ts #active': '1000, and a partner of each',
  'src/webhooks/worker/endpoint-queues.ts #queues': '1000, and a partner of each',
}

/** Class fields and module-level variables that start empty. */
const state =
  /^(?: {2}(?:readonly )?(#\w+)|(?:const|let) (\w+))(?:: [^=\n]+)? = (?:new (?:Map|Set|FairQueue)<.*>\(\)|new (?:Map|Set|FairQueue)\(\)|\[\])$/gm

const ofProcess = (Object.keys(defaultLimits) as LimitName[]).filter(
  (name): name is ProcessLimit => defaultLimits[name].counted === 'process',
)

describe('the memory of a process', () => {
  it('has a bound wherever it grows', () => {
    const files = globSync(['src/**/*.ts', 'daemon/**/*.ts'], { cwd: root })
    const found = files
      .filter((file) => !file.startsWith('src/cli/') && !file.startsWith('src/device-agent/'))
      .flatMap((file) => {
        const text = readFileSync(`${root}/${file}`, 'utf8')
        return [...text.matchAll(state)].map(([, field, name]) => `${file} ${field ?? name}`)
      })
    expect(found.length).toBeGreaterThan(30)
    expect(found.sort()).toEqual(Object.keys(bounds).sort())
  })

  it('for rate limit windows is bounded per limit, and one limit evicts nothing of another', () => {
    const limits = { IP: { count: 1, seconds: 60 }, AGENT: { count: 1, seconds: 60 } } as Limits
    const limiter = new Limiter(limits)
    limiter.take('AGENT', 'one')
    for (let n = 0; n < 100_500; n++) limiter.take('IP', `${n}`)
    expect(limiter.size).toBe(100_001)
    expect(() => limiter.take('AGENT', 'one')).toThrow()
    expect(() => limiter.take('IP', '100400')).toThrow()
    // The oldest window was evicted.
    limiter.take('IP', '0')
  })

  it.each(ofProcess)('for %s is empty again when its windows have expired', async (name) => {
    const limiter = new Limiter({ [name]: { count: 5, seconds: 0 } } as Limits)
    for (let n = 0; n < 100; n++) limiter.take(name, `${n}`)
    await limiter.sweep()
    expect(limiter.size).toBe(0)
  })

  it('is swept in pieces, between which requests are answered', async () => {
    const limiter = new Limiter({ IP: { count: 5, seconds: 60 } } as unknown as Limits)
    for (let n = 0; n < 20_000; n++) limiter.take('IP', `${n}`)
    let turns = 0
    const count = () => {
      turns += 1
      next = setImmediate(count)
    }
    let next = setImmediate(count)
    await limiter.sweep()
    clearImmediate(next)
    expect(turns).toBeGreaterThan(10)
  })

  it('for a long window expires in linear time', () => {
    const full = new Limiter({ IP: { count: 300_000, seconds: 30 } } as unknown as Limits)
    for (let n = 0; n < 300_000; n++) full.take('IP', 'a')
    vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 60_000)
    const begun = process.hrtime.bigint()
    full.take('IP', 'a')
    // With shift() it takes a minute.
    expect(Number(process.hrtime.bigint() - begun) / 1e6).toBeLessThan(2000)
    vi.restoreAllMocks()
  })

  it('for a full limit evicts the oldest entry as fast as it adds one', () => {
    const limiter = new Limiter({ IP: { count: 5, seconds: 60 } } as unknown as Limits)
    const fill = (from: number) => {
      const begun = performance.now()
      for (let n = from; n < from + 100_000; n++) limiter.take('IP', `${n}`)
      return performance.now() - begun
    }
    const first = fill(0)
    // It took ten times as long, and growing, when each call skipped all evicted entries.
    const later = Math.min(...[1, 2, 3, 4].map((n) => fill(n * 100_000)))
    expect(later).toBeLessThan(first * 6 + 100)
    expect(limiter.size).toBe(100_000)
  })

  it('for agent commands is 10,000, and the newest of them are answered', async () => {
    const links = new AgentConnections(() => {})
    const sent: string[] = []
    const socket = { send: (text: string) => sent.push(text), bufferedAmount: 0 } as unknown as WebSocket
    const agent = {
      agentId: 'a',
      deviceId: 'a',
      orgId: 'o',
      partnerId: 'p',
      tokenHash: 'h',
      ip: '::1',
      userAgent: null,
    }
    const link = new AgentConnection('link', agent, socket, 0)
    links.add(link)
    for (let n = 0; n < 10_500; n++) await links.request('a', { type: 'x', payload: {} }, { timeoutMs: 0 })
    expect(links.asked).toBe(10_000)
    const idAt = (at: number) => (JSON.parse(sent.at(at)!) as { id: string }).id
    expect(links.settle(link, idAt(-1), { status: 'timeout' })).toBe(true)
    expect(links.settle(link, idAt(0), { status: 'timeout' })).toBe(false)
  })

  it('for audited reads is 10,000', () => {
    const [throttle] = entriesOf(api).flatMap(({ entry }) => readAuditThrottle(entry) ?? [])
    for (let n = 0; n < 10_500; n++) throttle!.isNew(`user ${n}`, { params: {}, query: {} }, 0)
    expect(throttle!.size).toBe(10_000)
    expect(throttle!.isNew('user 10499', { params: {}, query: {} }, 1)).toBe(false)
  })

  it('for bodies is released after they were processed', () => {
    const budget = new BodyBudget({ whole: 2 ** 30, perCaller: 1000 }, 'requests', new Registry())
    const all = Array.from({ length: 5000 }, (_, n) => budget.hold(`agent ${n}`))
    for (const held of all) held.grow(10)
    expect([budget.used, budget.callers]).toEqual([50_000, 5000])
    for (const held of all) held.release()
    expect([budget.used, budget.callers]).toEqual([0, 0])
  })
})

describe('waiting requests', () => {
  it('are bounded: a further one is told to retry, and health checks are still answered', async () => {
    const service = await startService(() => openMigrated('sqlite'))
    const waiting: (() => void)[] = []
    const contract: Contract = {
      a: {
        wait: endpoint({
          method: 'GET',
          path: '/wait',
          summary: 'Waits',
          tag: 'A',
          access: publicAccess,
          reply: z.object({}),
        }),
      },
    }
    const keys = new Set<string>()
    const wait = () => {
      keys.add(currentFairShareKey().join())
      return new Promise<object>((resolve) => waiting.push(() => resolve({})))
    }
    const house = await serveContract(service, contract, { a: { wait } }, 12)
    const ask = async () => {
      const line = new Line(house.url)
      const answer = await line.send({ method: 'GET', path: '/api/v1/wait' })
      await line.close()
      return answer
    }
    // A quarter of the limit, as the callers are not signed in.
    const busy = [ask(), ask(), ask()]
    await expect.poll(() => waiting.length, { timeout: 10_000 }).toBe(3)
    expect([...keys]).toEqual(['nobody,127.0.0.1'])
    const refused = await ask()
    expect([refused.status, refused.headers['retry-after']]).toEqual([503, '1'])
    expect((await fetch(`${house.url}/health/live`)).status).toBe(200)
    for (const go of waiting.splice(0)) go()
    expect((await Promise.all(busy)).map(({ status }) => status)).toEqual([200, 200, 200])
    const again = ask()
    await expect.poll(() => waiting.length, { timeout: 10_000 }).toBe(1)
    waiting[0]!()
    expect((await again).status).toBe(200)
    await house.close()
  })

  it('do not count after they failed', async () => {
    const bound = new ConcurrencyLimit(1, new Registry())
    await expect(bound.run(() => Promise.reject(new Error('no')))).rejects.toThrow('no')
    expect(await bound.run(async () => 'yes')).toBe('yes')
  })
})
