import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import type { HandlersOf } from '../../handler.ts'
import { assertHasKey } from '../../storage/key-check.ts'
import { lastSequence } from '../deliveries/requested.ts'
import { bodyOf, headersOf } from '../deliveries/rules.ts'
import { activeSecrets } from '../rules.ts'
import { getWebhook } from '../store.ts'
import type * as contract from './contract.ts'
import { findToRelay } from './store.ts'

/** Most deliveries of one reply: each has a body of up to 64 KiB. */
const pageSize = 20

/** Reads rows and changes none: deliveries are neither held up nor lost, whoever reads copies of them. */
export const webhookRelayHandlers = (on: { cipher: Cipher }): HandlersOf<typeof contract.webhookRelay> => ({
  async read({ db, scope, params, query: { after }, now, note }) {
    const { webhook } = await getWebhook(db, on.cipher, scope, params.id)
    const { id, orgId, name, unreadable } = webhook
    note({ orgId, resourceName: name })
    if (unreadable.secret !== undefined) {
      await assertHasKey(db, on.cipher, unreadable.secret)
      throw new Problem(
        'conflict',
        'The secret of this webhook cannot be decrypted with the keys of the service: set it anew',
      )
    }
    if (after === undefined) return { data: [], nextAfter: await lastSequence(db, scope, id) }
    const found = await findToRelay(db, scope, { webhookId: id, after, limit: pageSize })
    const signing = { secrets: activeSecrets(webhook, now), headers: [], at: now }
    const data = found.map((delivery) => {
      const body = bodyOf(delivery)
      return { sequence: delivery.seq, headers: headersOf(delivery, body, signing), body }
    })
    return { data, nextAfter: found.at(-1)?.seq ?? after }
  },
})
