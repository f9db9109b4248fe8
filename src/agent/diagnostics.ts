import type { NewDiagnosticLog } from '../logs/diagnostic/contract.ts'
import { clean } from './clean.ts'
import type { AgentEvent, Report } from './events.ts'

/** As many as are handed in at once; of more the latest are kept. */
const most = 500

/** The agent's own warnings, until they are handed in. */
export function keepDiagnostics() {
  let kept: NewDiagnosticLog[] = []
  return {
    /** A report that is kept here as well. */
    watch:
      (report: Report): Report =>
      (event) => {
        report(event)
        const log = logOf(event)
        if (log) kept = [...kept.slice(1 - most), log]
      },
    kept: (): NewDiagnosticLog[] => kept,
    drop(logs: readonly NewDiagnosticLog[]): void {
      kept = kept.filter((log) => !logs.includes(log))
    },
  }
}
export type Diagnostics = ReturnType<typeof keepDiagnostics>

function logOf(event: AgentEvent): NewDiagnosticLog | undefined {
  // That they could not be handed in is not worth handing in.
  if (event.event !== 'failed' || event.step === 'diagnostics') return undefined
  const { step, code, message, failures } = event
  return {
    timestamp: new Date().toISOString(),
    level: 'warn',
    component: step,
    message: clean(message, 10_000),
    fields: { code, failures },
  }
}
