import type { Heartbeat } from '../agents/contract.ts'

/** Events that the agent reports; with --json they are its output, so a field is never renamed. */
export type AgentEvent =
  | {
      event: 'enrolled' | 'resumed'
      deviceId: string
      agentId: string
      orgId: string
      siteId: string | null
      url: string
    }
  | { event: 'inventory'; deviceId: string; disks: number; network: number; software: number }
  | { event: 'heartbeat'; deviceId: string; metrics: Heartbeat['metrics'] }
  | { event: 'eventlogs'; deviceId: string; sent: number; new: number }
  | { event: 'diagnostics'; deviceId: string; sent: number }
  | { event: 'listening'; deviceId: string }
  | { event: 'command'; deviceId: string; id: string; type: string; status: string }
  | { event: 'token'; deviceId: string }
  | { event: 'update'; state: UpdateState; version: string; reason?: string }
  | { event: 'restart'; reason: string; retryInSeconds: number }
  | { event: 'failed'; step: Step; code: string; message: string; failures: number; retryInSeconds: number }
  | { event: 'stopped' }

export type Step =
  | 'enrollment'
  | 'inventory'
  | 'heartbeat'
  | 'eventlogs'
  | 'diagnostics'
  | 'listening'
  | 'rotation'
  | 'key'
  | 'update'
  | 'watchdog'

/** Progress of an update. `off`: updates are disabled. */
type UpdateState =
  | 'downloading'
  | 'downloaded'
  | 'trying'
  | 'installed'
  | 'failed'
  | 'refused'
  | 'rolled_back'
  | 'off'

export type Report = (event: AgentEvent) => void

const taskOf: { [S in Step]?: string } = {
  eventlogs: 'submission of event logs',
  diagnostics: 'submission of diagnostics',
  listening: 'connection for live queries',
  rotation: 'change of the token',
  key: 'registration of the key',
  watchdog: 'heartbeat of the watchdog',
}

const updateLines: Record<UpdateState, (version: string, reason: string) => string> = {
  downloading: (version) => `Update to ${version}: downloading`,
  downloaded: (version) => `Update to ${version}: downloaded and verified`,
  trying: (version) => `Update to ${version}: on trial`,
  installed: (version) => `Updated to ${version}`,
  failed: (version, reason) => `The update to ${version} failed: ${reason}`,
  refused: (version, reason) => `The update to ${version} was refused: ${reason}`,
  rolled_back: (version, reason) => `The update to ${version} was rolled back: ${reason}`,
  off: (_, reason) => `This agent does not update itself: ${reason}`,
}

/** The event as a short line of text. */
export function formatEvent(event: AgentEvent): string {
  switch (event.event) {
    case 'enrolled':
      return `Enrolled as device ${event.deviceId} at ${event.url}`
    case 'resumed':
      return `Device ${event.deviceId} reports to ${event.url}`
    case 'inventory':
      return `Inventory sent: disks ${event.disks}, addresses ${event.network}, packages ${event.software}`
    case 'heartbeat': {
      const { cpuPercent, ramPercent, diskPercent } = event.metrics ?? {}
      const shown = { CPU: cpuPercent, RAM: ramPercent, disk: diskPercent }
      const known = Object.entries(shown).flatMap(([name, value]) =>
        value === undefined ? [] : [`${name} ${Math.round(value)} %`],
      )
      return ['Heartbeat sent', known.join(', ')].filter(Boolean).join(': ')
    }
    case 'eventlogs':
      return `Event logs sent: ${event.sent}, new ${event.new}`
    case 'diagnostics':
      return `Diagnostics sent: ${event.sent}`
    case 'listening':
      return 'Connected for live queries'
    case 'command':
      return `Command ${event.type}: ${event.status}`
    case 'token':
      return 'The token of this agent was replaced'
    case 'update':
      return updateLines[event.state](event.version, event.reason ?? '')
    case 'restart':
      return `The agent ended (${event.reason}); starting it again in ${event.retryInSeconds} s`
    case 'failed':
      return `The ${taskOf[event.step] ?? event.step} failed (${event.message}); trying again in ${Math.ceil(event.retryInSeconds)} s`
    case 'stopped':
      return 'Stopped'
  }
}
