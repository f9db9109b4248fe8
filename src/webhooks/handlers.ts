import { isIP } from 'node:net'
import type { Cipher } from '../core/cipher.ts'
import { assertNotEmptyChange, checkAll } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Outbound } from '../core/outbound.ts'
import { randomBytes } from '../core/random.ts'
import { newWebhookSecret } from '../core/webhook-signature.ts'
import { type HandlersOf, inSteps, type Preparation } from '../handler.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { checkOrg } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { countDeliveries } from './deliveries/store.ts'
import { reschedule } from './queues.ts'
import {
  applyChange,
  auditDiff,
  checkHeaders,
  checkUrl,
  credentialsFault,
  makeWebhook,
  redactWebhook,
  resolvedHostFault,
  toRetryPolicy,
  urlFault,
  type WebhookRecord,
  withRotatedSecret,
} from './rules.ts'
import * as store from './store.ts'

type Webhooks = typeof contract.webhooks
type Outside = Preparation<Webhooks['create']>['outside']

/** Whether the host is an address: nobody has to be asked for it. */
const isAddress = ({ hostname }: URL): boolean => isIP(hostname.replace(/^\[|\]$/g, '')) !== 0

const newSecret = () => newWebhookSecret(randomBytes(32))

export const webhookHandlers = (on: { cipher: Cipher; outbound: Outbound }): HandlersOf<Webhooks> => {
  const { cipher, outbound } = on

  /**
   * In a transaction no name is looked up: each delivery does, and refuses private addresses.
   * @throws invalid_request for a URL that must not receive deliveries
   */
  async function checkReachable(url: string, outside: Outside): Promise<void> {
    checkUrl(urlFault(url))
    const to = new URL(url)
    const lookUp = () => outbound.locateHost(to)
    const host = await (isAddress(to) ? lookUp() : outside(lookUp))
    if (host !== undefined) checkUrl(resolvedHostFault(host))
    checkUrl(credentialsFault(url))
  }

  /** The audit facts of a change. */
  const changed = (before: WebhookRecord, after: WebhookRecord) => ({
    orgId: after.orgId,
    resourceName: after.name,
    ...auditDiff(before, after),
  })

  return {
    async list({ db, readQueryIfWide, scope, query }) {
      if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
      return readQueryIfWide((on) => store.listWebhooks(on, cipher, scope, query))
    },

    create: inSteps<Webhooks['create'], void>({
      async prepare({ body, outside }) {
        await checkAll(
          () => checkReachable(body.url, outside),
          () => checkHeaders(body.headers),
        )
      },
      async run({ db, scope, body, caller, now, note, quota }) {
        const orgId = await resolveOrg(db, scope, body.orgId)
        const generated = body.secret === undefined ? newSecret() : undefined
        const wanted = { ...body, secret: body.secret ?? generated, orgId }
        const webhook = makeWebhook(wanted, { id: newId(), by: caller.id, now })
        await quota({ orgId })
        await store.insertWebhook(db, cipher, webhook)
        const { name, url, events, headers } = redactWebhook(webhook)
        note({ resourceName: name, after: { name, url, events, headers } })
        return { ...store.toWebhook(webhook, store.noCounts), secret: generated }
      },
    }),

    async show({ db, storage, scope, params }) {
      const { webhook, counts } = await store.getWebhook(db, cipher, scope, params.id)
      const counted = await countDeliveries(storage.heavy, scope, webhook.id)
      const deliveryStats = { ...counted, lastDeliveredAt: counts.last_success_at }
      return { ...store.toWebhook(webhook, counts), deliveryStats }
    },

    update: inSteps<Webhooks['update'], void>({
      async prepare({ body, outside }) {
        assertNotEmptyChange(body)
        const { url, headers = [] } = body
        await checkAll(
          () => (url === undefined ? undefined : checkReachable(url, outside)),
          () => checkHeaders(headers),
        )
      },
      async run({ db, scope, params, body, now, note }) {
        const { webhook: before, counts } = await store.lockWebhook(db, cipher, scope, params.id)
        const after = applyChange(before, body, now)
        await store.changeWebhook(db, cipher, scope, after)
        if (body.events !== undefined) await store.replaceEvents(db, after)
        if (after.status !== before.status) {
          await reschedule(db, after.id, { isActive: after.status === 'active' })
        }
        note(changed(before, after))
        return store.toWebhook(after, counts)
      },
    }),

    async remove({ db, scope, params, now, note }) {
      const { webhook } = await store.lockWebhook(db, cipher, scope, params.id)
      await store.removeWebhook(db, scope, webhook.id, now)
      const { orgId, name, url, events } = redactWebhook(webhook)
      note({ orgId, resourceName: name, before: { name, url, events } })
      return { success: true }
    },

    async setRetryPolicy({ db, scope, params, body, now, note }) {
      const retryPolicy = toRetryPolicy(body)
      const { webhook: before, counts } = await store.lockWebhook(db, cipher, scope, params.id)
      const after = { ...before, retryPolicy, updatedAt: now }
      await store.changeWebhook(db, cipher, scope, after)
      note(changed(before, after))
      return store.toWebhook(after, counts)
    },

    async rotateSecret({ db, scope, params, body, now, note }) {
      const { webhook: before, counts } = await store.lockWebhook(db, cipher, scope, params.id)
      const secret = body.secret ?? newSecret()
      const after = withRotatedSecret(before, secret, now)
      await store.changeWebhook(db, cipher, scope, after)
      note(changed(before, after))
      const { previousUntil: previousValidUntil } = after
      const overlap =
        previousValidUntil === null ? '' : ` Until ${previousValidUntil} the previous secret signs as well.`
      const warning = `Store this secret securely. It will not be shown again.${overlap}`
      return { ...store.toWebhook(after, counts), secret, previousValidUntil, warning }
    },
  }
}
