import { newId } from '../../core/new-id.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import { currentTrace } from '../../storage/trace.ts'
import { checkOrg } from '../../tenancy/store.ts'
import { getSummary } from '../store.ts'
import type * as contract from './contract.ts'
import * as requested from './requested.ts'
import { checkRetriable, testPayload } from './rules.ts'
import * as store from './store.ts'

type Deliveries = typeof contract.webhookDeliveries

/** Most deliveries sent again by one replay request: a transaction of some milliseconds. */
const maxReplayed = 500

export const webhookDeliveries: HandlersOf<Deliveries> = {
  async list({ db, readQuery, scope, params, query }) {
    await getSummary(db, scope, params.id)
    // Counting the total may read millions of deliveries.
    return readQuery((on) => store.listDeliveries(on, scope, params.id, query))
  },

  async dead({ db, readQuery, scope, query }) {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    return readQuery((on) => store.listFailedDeliveries(on, scope, query))
  },

  async show({ db, scope, params }) {
    const { id: webhookId } = await getSummary(db, scope, params.id)
    return store.getDelivery(db, scope, { webhookId, id: params.deliveryId })
  },

  async test({ db, scope, params, body, now, note }) {
    const { id: webhookId, orgId, name } = await getSummary(db, scope, params.id)
    const { event, payload = testPayload(webhookId, now) } = body
    const [id, eventId] = [newId(), newId()]
    await requested.insertRequested(db, { id, webhookId, orgId, event, eventId, payload, now })
    currentTrace()?.published({ id: eventId, type: event, orgId })
    note({ orgId, resourceName: name, details: { deliveryId: id, event } })
    const delivery = { id, webhookId, status: 'pending' as const, event, attempt: 0 }
    return { message: 'Test delivery queued', delivery }
  },

  async retry({ db, scope, params, now, note }) {
    const { id: webhookId, isActive } = await getSummary(db, scope, params.id)
    const delivery = await store.lockDelivery(db, scope, { webhookId, id: params.deliveryId })
    checkRetriable(delivery)
    const { id: retryOf, orgId, event, eventId } = delivery
    const [id] = await requested.resendDeliveries(db, scope, {
      webhookId,
      ids: [retryOf],
      isActive,
      isReplay: false,
      now,
    })
    if (id === undefined) throw new Error('A failed delivery that is held was not there')
    note({ orgId, resourceId: retryOf, resourceName: event, details: { webhookId, eventId, deliveryId: id } })
    const again = { id, webhookId, status: 'pending' as const, event, attempt: 0 }
    return { message: 'Delivery retry queued', delivery: again }
  },

  replay: inSteps<Deliveries['replay'], { found: { id: string; seq: number }[]; through: number }>({
    async prepare({ storage, scope, params, body }) {
      await getSummary(storage.read, scope, params.id)
      // Deliveries created meanwhile, also by this replay, are excluded: otherwise it would never end.
      const through = body.through ?? (await requested.lastSequence(storage.read, scope, params.id))
      const range = { ...body, through }
      return {
        through,
        found: await requested.findForReplay(storage.heavy, scope, params.id, range, maxReplayed + 1),
      }
    },
    async run({ db, scope, params, body, now, note }, { found, through }) {
      const { id: webhookId, orgId, name, isActive } = await getSummary(db, scope, params.id)
      const part = found.slice(0, maxReplayed)
      const ids = part.map(({ id }) => id)
      const { length: deliveries } = await requested.resendDeliveries(db, scope, {
        webhookId,
        ids,
        isActive,
        isReplay: true,
        now,
      })
      const { since = null, until = null, status = null } = body
      note({ orgId, resourceName: name, details: { deliveries, since, until, status } })
      const nextAfter = found.length > maxReplayed ? part.at(-1)!.seq : null
      return { message: `${deliveries} deliveries queued`, deliveries, nextAfter, through }
    },
  }),
}
