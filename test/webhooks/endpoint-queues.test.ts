import { describe, expect, it } from 'vitest'
import { queuedLookup } from '../../daemon/integrations/lookup.ts'
import type { PendingDelivery } from '../../src/webhooks/deliveries/rules.ts'
import { EndpointQueues, workerLimits } from '../../src/webhooks/worker/endpoint-queues.ts'

let made = 0
const pendingDelivery = (webhookId: string, orgId: string): PendingDelivery => {
  made += 1
  const what = {
    event: 'patch.failed',
    eventId: 'e',
    eventAt: '',
    payload: '{}',
    attempt: 0,
    askedFor: 0,
    dueAt: '',
  }
  return { id: String(made), webhookId, orgId, seq: made, ...what }
}

/** Queues with so many ready deliveries for each of so many webhooks of an organization. */
function fill(
  queues: EndpointQueues,
  orgId: string,
  webhooks: number,
  each: number,
  partnerId = orgId,
): void {
  for (let i = 0; i < webhooks; i += 1) {
    const webhookId = `${orgId}${i}`
    queues.add(webhookId, [`partner ${partnerId}`, orgId])
    const queue = queues.get(webhookId)!
    queue.ready.push(...Array.from({ length: each }, () => pendingDelivery(webhookId, orgId)))
    queues.enqueue(queue)
  }
}

function taken(queues: EndpointQueues, atMost = Number.POSITIVE_INFINITY) {
  const all: { orgId: string; webhookId: string }[] = []
  for (let next = all.length < atMost ? queues.next() : undefined; next; ) {
    const { fairShareKey, webhookId } = next.queue
    all.push({ orgId: fairShareKey[1]!, webhookId })
    next = all.length < atMost ? queues.next() : undefined
  }
  return all
}

describe('the queue of deliveries', () => {
  it('serves each organization in turn, and each of its webhooks in turn', () => {
    const queues = new EndpointQueues()
    fill(queues, 'a', 300, 2)
    fill(queues, 'b', 1, 3)
    fill(queues, 'c', 2, 2)
    const first = taken(queues, 9)
    expect(first.map(({ orgId }) => orgId)).toEqual(['a', 'b', 'c', 'a', 'b', 'c', 'a', 'b', 'c'])
    expect(first.filter(({ orgId }) => orgId === 'c').map(({ webhookId }) => webhookId)).toEqual([
      'c0',
      'c1',
      'c0',
    ])
  })

  it('sends at most four per webhook, a tenth of the total per organization, and the total', () => {
    const one = new EndpointQueues()
    fill(one, 'a', 1, 9)
    expect(taken(one)).toHaveLength(4)

    const many = new EndpointQueues()
    fill(many, 'a', 200, 4)
    expect(taken(many)).toHaveLength(workerLimits.ofOrg)
    for (let org = 0; org < 12; org += 1) fill(many, `o${org}-`, 50, 4)
    expect(taken(many)).toHaveLength(workerLimits.inAll - workerLimits.ofOrg)
  })

  it('sends at most half of the total per partner, however many organizations it creates', () => {
    const queues = new EndpointQueues()
    for (let org = 0; org < 20; org += 1) fill(queues, `a${org}-`, 40, 4, 'a')
    fill(queues, 'b', 1, 4)
    const sent = taken(queues)
    expect(sent.slice(0, 8).filter(({ orgId }) => orgId === 'b')).toHaveLength(4)
    expect(sent).toHaveLength(workerLimits.ofPartner + 4)
    expect(queues.full()).toEqual(['partner a'])
  })

  it('releases a queue for other webhooks of an organization or partner at its limit', () => {
    const queues = new EndpointQueues()
    fill(queues, 'a', workerLimits.ofOrg - 1, 0)
    fill(queues, 'b', 1, 64)
    const sendAll = (queue = queues.get('b0')!) => {
      for (let next = queues.next(); next; next = queues.next()) {
        queues.attemptEnded(queue)
        queues.outcomeRecorded(queue, next.delivery.id)
      }
      return queues.yieldsToOthers(queue)
    }
    expect(sendAll()).toBe(false)
    for (let n = 0; n < workerLimits.ofOrg - 1; n += 1) queues.add(`b-${n}`, ['partner b', 'b'])
    expect([queues.full(), queues.yieldsToOthers(queues.get('b0')!)]).toEqual([['b'], true])
    for (let org = 0; org < 5; org += 1) fill(queues, `c${org}`, 90, 0, 'a')
    expect([queues.full(), queues.yieldsToOthers(queues.get('a0')!)]).toEqual([['partner a', 'b'], false])
  })

  it('sends one at a time while the receiver fails', () => {
    const queues = new EndpointQueues()
    fill(queues, 'a', 1, 3)
    const queue = queues.get('a0')!
    queue.isFailing = true
    expect(taken(queues)).toHaveLength(1)
    const [id] = queue.inFlight
    queues.attemptEnded(queue)
    expect(taken(queues)).toEqual([])
    queue.isFailing = false
    queues.outcomeRecorded(queue, id!)
    expect(taken(queues)).toHaveLength(2)
  })

  it('makes a queue yield after a while, when others wait for room', () => {
    const queues = new EndpointQueues()
    fill(queues, 'a', 1, 64)
    const queue = queues.get('a0')!
    for (let i = 0; i < 64; i += 1) {
      const next = queues.next()!
      queues.attemptEnded(queue)
      queues.outcomeRecorded(queue, next.delivery.id)
    }
    expect([queues.wanted(queue) > 0, queues.yieldsToOthers(queue)]).toEqual([true, false])
    for (let org = 0; queues.room > 0; org += 1) fill(queues, `o${org}-`, Math.min(queues.room, 100), 0)
    expect([queues.wanted(queue), queues.yieldsToOthers(queue)]).toEqual([0, true])
    expect(queues.full()).toHaveLength(9)
  })
})

describe('name lookups', () => {
  it('run a limited number at once, and once for all concurrent callers', () => {
    const asked: [string, () => void][] = []
    const lookup = queuedLookup({ atOnce: 2 }, (name, _, done) => {
      asked.push([name, () => done(null, [{ address: `of ${name}`, family: 4 }])])
    })
    const found: string[] = []
    const ask = (name: string) => lookup(name, { all: true }, (_, all) => found.push(all[0]!.address))
    for (const name of ['a', 'b', 'a', 'c', 'c', 'd']) ask(name)
    expect(asked.map(([name]) => name)).toEqual(['a', 'b'])
    asked[0]![1]()
    expect([found, asked.map(([name]) => name)]).toEqual([
      ['of a', 'of a'],
      ['a', 'b', 'c'],
    ])
    for (let i = 1; i < asked.length; i += 1) asked[i]![1]()
    expect(found).toEqual(['of a', 'of a', 'of b', 'of c', 'of c', 'of d'])
    ask('a')
    expect(asked.at(-1)![0]).toBe('a')
  })

  it('of slow names wait for each other, and delay no other name', () => {
    const asked = new Map<string, () => void>()
    const lookup = queuedLookup({ atOnce: 4, lateAtOnce: 1, lateMs: 0 }, (name, _, done) => {
      asked.set(name, () => done(null, [{ address: '192.0.2.1', family: 4 }]))
    })
    const ask = (...names: string[]) => {
      for (const name of names) lookup(name, { all: true }, () => {})
    }
    const answer = (...names: string[]) => {
      for (const name of names) {
        asked.get(name)!()
        asked.delete(name)
      }
    }
    ask('late-1', 'late-2', 'late-3')
    answer('late-1', 'late-2', 'late-3')
    ask('late-1', 'late-2', 'late-3', 'a', 'b', 'c', 'd')
    expect([...asked.keys()]).toEqual(['late-1', 'a', 'b', 'c'])
    answer('a')
    expect([...asked.keys()]).toEqual(['late-1', 'b', 'c', 'd'])
    answer('b', 'c', 'd')
    expect([...asked.keys()]).toEqual(['late-1'])
    answer('late-1')
    expect([...asked.keys()]).toEqual(['late-2'])
  })
})
