import { newId } from '../../core/new-id.ts'
import type { Scope } from '../../core/scope.ts'
import type { Instant } from '../../core/time.ts'
import { lockDevice } from '../../devices/changes.ts'
import type { Device } from '../../devices/contract.ts'
import { emitUpdated } from '../../devices/events.ts'
import { type AuditFacts, type HandlersOf, inSteps } from '../../handler.ts'
import type { ByteQuota } from '../../logs/quota.ts'
import type { Db } from '../../storage/open.ts'
import { commandsFor } from '../heartbeats.ts'
import type * as contract from './contract.ts'
import type { Nudge } from './ports.ts'
import { recordResult, redactOutcome } from './results.ts'
import { checkCommandable, checkQueueLimit, makeCommand } from './rules.ts'
import * as store from './store.ts'

type CommandRequest = {
  db: Db
  scope: Scope
  caller: { id: string }
  now: Instant
  note(facts: AuditFacts): void
}

export function commandHandlers({ nudge, commandQuota }: { nudge: Nudge; commandQuota: ByteQuota }) {
  async function queue(asking: CommandRequest, deviceId: string, wanted: contract.NewCommand) {
    const { db, scope, caller, now, note } = asking
    const device = await lockDevice(db, scope, deviceId)
    const { id, orgId, hostname } = device
    note({ orgId, resourceId: id, resourceName: hostname })
    checkCommandable(device, await store.tenancyOf(db, id))
    if (wanted.type === 'set_auto_update') await applyAutoUpdate(asking, device, wanted.payload.enabled)
    else note({ after: wanted })
    checkQueueLimit(await store.countOpen(db, id))
    const command = makeCommand(wanted, { id: newId(), orgId, deviceId: id, by: caller.id, now })
    await store.insertCommand(db, command)
    await store.deleteOldestCommands(db, id)
    await nudge(db, id)
    note({ details: { commandId: command.id } })
    return command
  }

  /** The desired setting is also stored apart from the command, which may never arrive: heartbeats repeat it. */
  async function applyAutoUpdate({ db, now, note }: CommandRequest, device: Device, enabled: boolean) {
    const { desired } = device.autoUpdate
    await store.supersedeCommands(db, { deviceId: device.id, type: 'set_auto_update', now })
    await store.setDesiredAutoUpdate(db, device.id, { enabled, now })
    const autoUpdate = { ...device.autoUpdate, desired: enabled }
    if (desired !== enabled) await emitUpdated(db, device, { autoUpdate }, now)
    note({ before: { autoUpdate: desired }, after: { autoUpdate: enabled } })
  }

  const deviceCommands: HandlersOf<typeof contract.deviceCommands> = {
    create: ({ params, body, ...asking }) => queue(asking, params.id, body),
    setAutoUpdate: ({ params, body: payload, ...asking }) =>
      queue(asking, params.id, { type: 'set_auto_update', payload, targetRole: 'agent' }),
    list: ({ db, scope, params, query }) => store.listCommands(db, scope, params.id, query),
    show: ({ db, scope, params }) =>
      store.getCommand(db, scope, { deviceId: params.id, id: params.commandId }),
  }

  type Result = (typeof contract.agentCommands)['result']
  const agentCommands: HandlersOf<typeof contract.agentCommands> = {
    // Fetching commands claims them, so it writes.
    async list({ storage, caller, now }) {
      if (caller.device.has_commands === null) return { commands: [] }
      const commands = await storage.write((tx) => commandsFor(tx, caller, now), { unsynced: true })
      return { commands }
    },
    result: inSteps<Result, contract.Outcome>({
      // Redaction runs here, before the transaction, so that no other write waits for it.
      prepare: ({ body }) => redactOutcome(body),
      async run({ db, params: { commandId }, caller, now, note }, outcome) {
        const { deviceId, device } = caller
        note({ resourceId: deviceId, resourceName: device.hostname, details: { commandId } })
        const { status, exitCode } = outcome
        note({ after: { status, exitCode } })
        const kept = await recordResult(db, caller, { id: commandId, outcome }, commandQuota, now)
        if (kept === 'late') note({ unchanged: true })
        return { success: true }
      },
    }),
  }
  return { deviceCommands, agentCommands }
}
