import { agentRollouts } from '../agents/rollouts/contract.ts'
import { readProgress } from '../agents/rollouts/read-progress.ts'
import { findActiveRollout } from '../agents/rollouts/store.ts'
import { alerts } from '../alerts/contract.ts'
import { countOpenAlerts } from '../alerts/store.ts'
import { countVerdictsIn } from '../audit/checkpoints/verdicts.ts'
import { auditLogs } from '../audit/contract.ts'
import { sumHeadsIn } from '../audit/store.ts'
import { addSeconds } from '../core/time.ts'
import { devices } from '../devices/contract.ts'
import { countByStatus } from '../devices/store.ts'
import type { HandlersOf } from '../handler.ts'
import { decideAccess } from '../identity/rules.ts'
import { scopeWithin } from '../tenancy/store.ts'
import { webhooks } from '../webhooks/contract.ts'
import { countWaiting } from '../webhooks/deliveries/store.ts'
import { countWebhooks } from '../webhooks/store.ts'
import { type overview as contract, maxWaiting, type Overview, type OverviewPart } from './contract.ts'
import { alertCounts, auditCounts, deviceCounts, ownChain, reasonOf, webhookCounts } from './rules.ts'

/** The endpoint whose access decides about each part. */
const entryOf = {
  devices: devices.list,
  alerts: alerts.list,
  webhooks: webhooks.list,
  rollout: agentRollouts.show,
  audit: auditLogs.heads,
}

/** `mfaOn`: ENABLE_2FA. */
export const overviewHandlers = ({ mfaOn }: { mfaOn: boolean }): HandlersOf<typeof contract> => ({
  async show({ db, readQuery, scope, caller, query: { orgId }, now }) {
    const seen = await scopeWithin(db, scope, orgId)
    return readQuery(async (on) => {
      const leftOut: Overview['leftOut'] = []
      const part = async <T>(name: OverviewPart, read: () => Promise<T>): Promise<T | null> => {
        const { access } = entryOf[name]
        const verdict = decideAccess(access, caller, mfaOn)
        if (verdict.allowed) return read()
        leftOut.push({ part: name, reason: reasonOf(verdict, access.scopes) })
        return null
      }
      return {
        time: now,
        scope: scope.kind,
        devices: await part('devices', async () =>
          deviceCounts(await countByStatus(on, seen, addSeconds(now, -60))),
        ),
        alerts: await part('alerts', async () => alertCounts(await countOpenAlerts(on, seen))),
        webhooks: await part('webhooks', async () =>
          webhookCounts(await countWebhooks(on, seen), await countWaiting(on, seen, maxWaiting)),
        ),
        rollout: await part('rollout', async () => {
          const active = await findActiveRollout(on)
          return active ? readProgress(on, active, now) : null
        }),
        audit: await part('audit', async () =>
          auditCounts(await sumHeadsIn(on, seen, ownChain(seen)), await countVerdictsIn(on, seen)),
        ),
        leftOut,
      }
    })
  },
})
