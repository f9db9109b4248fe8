import type { NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import { type AgentEvent, formatEvent, type Report } from './events.ts'
import { sanitizeText } from './sanitize-text.ts'
import type { Spool } from './spool/spool.ts'

type Level = 'debug' | 'info' | 'warn'
const severity: Record<Level, number> = { debug: 0, info: 1, warn: 2 }

/** Records the agent's own events in the spool: warnings, unless a lower level was requested. */
export function diagnosticsRecorder(
  spool: Pick<Spool, 'append'>,
  now: () => number = () => performance.now(),
) {
  let asked: { level: Level; until: number } | undefined
  const from = (): Level => (asked && now() < asked.until ? asked.level : 'warn')
  return {
    /** Wraps a report function to record the events as well. */
    watch:
      (report: Report): Report =>
      (event) => {
        report(event)
        const log = logOf(event)
        if (log && severity[log.level as Level] >= severity[from()]) spool.append({ kind: 'diagnostic', log })
      },
    /** Records from this level on, for the given milliseconds. */
    setLevel(level: Level, ms: number): void {
      asked = { level, until: now() + ms }
    },
  }
}
export type DiagnosticsRecorder = ReturnType<typeof diagnosticsRecorder>

function logOf(event: AgentEvent): NewDiagnosticLog | undefined {
  const timestamp = new Date().toISOString()
  if (event.event === 'failed') {
    // A failure to send diagnostics is not recorded as a diagnostic.
    if (event.step === 'diagnostics') return undefined
    const { step, code, message, failures } = event
    const fields = { code, failures }
    return { timestamp, level: 'warn', component: step, message: sanitizeText(message, 10_000), fields }
  }
  // Neither is a success: that would never end.
  if (event.event === 'diagnostics' || event.event === 'stopped') return undefined
  const { event: component, ...said } = event
  return { timestamp, level: levelOf(event), component, message: formatEvent(event), fields: said }
}

function levelOf(event: AgentEvent): Level {
  if (event.event === 'heartbeat') return 'debug'
  if (event.event === 'restart') return 'warn'
  const worrying =
    event.event === 'update' && ['failed', 'refused', 'rolled_back', 'off'].includes(event.state)
  return worrying ? 'warn' : 'info'
}
