import { type Counter, Gauge, Registry } from 'prom-client'
import { systemScope } from '../src/core/scope.ts'
import { addSeconds, type Clock } from '../src/core/time.ts'
import { countExpiringApiKeys } from '../src/credentials/api-keys/store.ts'
import { countExpiringEnrollmentKeys } from '../src/credentials/enrollment-keys/store.ts'
import { deviceStatus } from '../src/devices/contract.ts'
import { countDevices } from '../src/devices/liveness.ts'
import type { Storage } from '../src/storage/open.ts'
import { addCounter, type StoredMetrics } from './metrics.ts'

/** How long counts are served before the tables are read again: that reads every device. */
const keepMs = 60_000
const daySeconds = 86_400

const transports = ['http', 'websocket'] as const

type On = { storage: Storage; clock: Clock; offlineAfterSeconds: number; metrics: Registry }

/** Counts heartbeats of agents to this process; and, across all tenants, devices by status and keys that expire soon. */
export class AgentWatch {
  readonly #heartbeats: Counter<'transport'>
  readonly stored: StoredMetrics

  constructor({ storage, clock, offlineAfterSeconds, metrics }: On) {
    const heartbeats = {
      name: 'svc_agent_heartbeats_total',
      help: 'Heartbeats that this process has received from agents, by how.',
    }
    this.#heartbeats = addCounter(metrics, heartbeats, 'transport', transports)
    const registry = new Registry()
    const gauges = gaugesOf(registry)
    const refresh = async () => {
      const now = clock()
      const within = (days: number) => ({ after: now, until: addSeconds(now, days * daySeconds) })
      // One after the other: together they would occupy every thread for heavy reads.
      const devices = await countDevices(storage.heavy, addSeconds(now, -offlineAfterSeconds / 2))
      const apiKeys = await countExpiringApiKeys(storage.heavy, systemScope, within(7))
      const enrollmentKeys = await countExpiringEnrollmentKeys(storage.heavy, systemScope, within(1))
      for (const status of deviceStatus.options) gauges.devices.set({ status }, 0)
      for (const { status, count } of devices) gauges.devices.set({ status }, count)
      gauges.late.set(devices.reduce((sum, { late }) => sum + late, 0))
      gauges.expiring.set({ kind: 'api_key' }, apiKeys)
      gauges.expiring.set({ kind: 'enrollment_key' }, enrollmentKeys)
    }
    this.stored = { registry, refresh, keepMs }
  }

  heartbeat(transport: (typeof transports)[number]): void {
    this.#heartbeats.inc({ transport })
  }
}

const gaugesOf = (registry: Registry) => ({
  devices: new Gauge({
    name: 'svc_devices',
    help: 'Devices of all tenants, by status.',
    labelNames: ['status'],
    registers: [registry],
  }),
  late: new Gauge({
    name: 'svc_devices_late',
    help: 'Devices that are online and have been silent for more than half of OFFLINE_AFTER_SECONDS.',
    registers: [registry],
  }),
  expiring: new Gauge({
    name: 'svc_keys_expiring',
    help: 'Keys in use that expire soon: API keys within seven days, enrollment keys within one.',
    labelNames: ['kind'],
    registers: [registry],
  }),
})
