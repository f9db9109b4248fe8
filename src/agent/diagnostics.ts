import type { NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import { clean } from './clean.ts'
import { type AgentEvent, lineOf, type Report } from './events.ts'

/** As many as are handed in at once; of more the latest are kept. */
const most = 500

type Level = 'debug' | 'info' | 'warn'
const severity: Record<Level, number> = { debug: 0, info: 1, warn: 2 }

/** What the agent has to say of itself, until it is handed in: warnings, unless it was asked for more. */
export function keepDiagnostics(now: () => number = () => performance.now()) {
  let kept: NewDiagnosticLog[] = []
  let asked: { level: Level; until: number } | undefined
  const from = (): Level => (asked && now() < asked.until ? asked.level : 'warn')
  return {
    /** A report that is kept here as well. */
    watch:
      (report: Report): Report =>
      (event) => {
        report(event)
        const log = logOf(event)
        if (log && severity[log.level as Level] >= severity[from()]) kept = [...kept.slice(1 - most), log]
      },
    /** From this level on, for so many milliseconds. */
    keepFrom(level: Level, ms: number): void {
      asked = { level, until: now() + ms }
    },
    kept: (): NewDiagnosticLog[] => kept,
    drop(logs: readonly NewDiagnosticLog[]): void {
      kept = kept.filter((log) => !logs.includes(log))
    },
  }
}
export type Diagnostics = ReturnType<typeof keepDiagnostics>

function logOf(event: AgentEvent): NewDiagnosticLog | undefined {
  const timestamp = new Date().toISOString()
  if (event.event === 'failed') {
    // That they could not be handed in is not worth handing in.
    if (event.step === 'diagnostics') return undefined
    const { step, code, message, failures } = event
    const fields = { code, failures }
    return { timestamp, level: 'warn', component: step, message: clean(message, 10_000), fields }
  }
  // Nor that they were: it would never end.
  if (event.event === 'diagnostics' || event.event === 'stopped') return undefined
  const { event: component, ...said } = event
  const level = component === 'heartbeat' ? 'debug' : 'info'
  return { timestamp, level, component, message: lineOf(event), fields: said }
}
