import { EarlyReply, type Handler, type HandlersOf, inSteps } from '../handler.ts'
import { batchWrites } from '../storage/batching.ts'
import type { Storage } from '../storage/open.ts'
import type * as contract from './contract.ts'
import { type EnrollSettings, enrollHandler } from './enrollment.ts'
import { type HeartbeatSettings, heartbeat, unchangedHeartbeat } from './heartbeats.ts'
import { saveInventory } from './inventory.ts'
import { agentConfig, collectors } from './rules.ts'
import * as store from './store.ts'

type Settings = HeartbeatSettings & EnrollSettings & { storage: Storage; onHeartbeat?(): void }

export const agentHandlers = (settings: Settings): HandlersOf<typeof contract.agents> => ({
  enroll: enrollHandler(settings),

  heartbeat: heartbeats(settings),

  async config({ caller: { device } }) {
    return { ...agentConfig, enabledCollectors: [...collectors], autoUpdate: device.auto_update === 1 }
  },

  async inventory({ db, caller, body }) {
    await saveInventory(db, caller.deviceId, body)
    return { success: true }
  },
})

/** Nearly all heartbeats report no change: those are recorded in batches. */
function heartbeats(settings: Settings): Handler<typeof contract.agents.heartbeat> {
  const { storage } = settings
  const record = storage.traits.serialWrites ? store.recordUnchangedOneByOne : store.recordUnchangedTogether
  const recordUnchanged = batchWrites(storage, record)
  return inSteps({
    async prepare({ caller, body, ip, userAgent, now }) {
      settings.onHeartbeat?.()
      const unchanged = unchangedHeartbeat(caller, body, { ip, userAgent, now }, settings)
      if (!unchanged) return { isStale: false }
      const isRecorded = await recordUnchanged(unchanged.row)
      return isRecorded ? new EarlyReply(unchanged.reply) : { isStale: true }
    },
    async run({ db, caller, body, ip, userAgent, now }, { isStale }) {
      const device = isStale ? await store.findAgent(db, caller.agentId) : undefined
      const agent = device ? { ...caller, device } : caller
      return heartbeat(db, agent, body, { ip, userAgent, now }, settings)
    },
  })
}
