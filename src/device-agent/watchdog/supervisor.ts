import type { MonotonicClock } from '../clock.ts'
import type { Report } from '../events.ts'
import type { AgentSettings } from '../settings.ts'
import type { BinarySwapper } from './binary-swap.ts'
import { type Child, describeExit } from './child.ts'
import { type Crash, isCrashLooping, restartDelay } from './crashes.ts'
import type { WatchdogHeartbeats } from './heartbeats.ts'
import { notifyWatchdog } from './messages.ts'

export type SupervisorOptions = {
  /** Starts the agent. */
  start: () => Child
  settings: () => AgentSettings
  clock: MonotonicClock
  report: Report
  signal: AbortSignal
  heartbeats: Pick<WatchdogHeartbeats, 'heard'>
  /** Without it this binary is never replaced. */
  installation: BinarySwapper | undefined
  /** This watchdog is itself on trial: it does not restart its agent. */
  onTrial: boolean
  /** Signals a binary that the watchdog itself downloaded in the agent's place. */
  staged: StagedSignal
}

/** Signals that another binary waits for its trial. */
export function stagedSignal() {
  let isPending = false
  let notify = (): void => {}
  return {
    add(): void {
      isPending = true
      notify()
    },
    take(): boolean {
      const wasPending = isPending
      isPending = false
      return wasPending
    },
    /** Calls the listener when a binary becomes available. */
    on(listener: () => void): void {
      notify = listener
    },
  }
}
type StagedSignal = ReturnType<typeof stagedSignal>

/** How supervision ended: with an exit code, or because this process must exec the installed binary. */
export type SupervisorOutcome = { exit: number } | 'become'

type RunResult =
  | { kind: 'over'; code: number }
  | { kind: 'crashed'; crash: Crash; reason: string }
  | { kind: 'staged' }

/**
 * Starts the agent and restarts it as needed, until the signal aborts or the agent says that a restart is pointless.
 */
export async function supervise(watching: SupervisorOptions): Promise<SupervisorOutcome> {
  const { clock, report, signal, installation, onTrial } = watching
  const crashes: Crash[] = []
  if (await installation?.recover()) return 'become'
  for (;;) {
    // While the agent cannot be started, this is the only opportunity.
    if (watching.staged.take() && (await installation?.attempt(async () => {}))) return 'become'
    const child = watching.start()
    const round = await runOnce(child, watching)
    if (round.kind === 'over') return { exit: round.code }
    if (round.kind === 'staged') {
      watching.staged.take()
      if (await installation?.attempt(() => child.stop())) return 'become'
      await child.stop()
      if (signal.aborted) return { exit: 0 }
      continue
    }
    if (onTrial) return { exit: 1 }
    crashes.push(round.crash)
    const { reason } = round
    if (isCrashLooping(crashes) && (await installation?.restore(`it ended three times (${reason})`)))
      return 'become'
    const pause = restartDelay(crashes)
    report({ event: 'restart', reason, retryInSeconds: pause / 1000 })
    // An abort ends the pause; the next line sees it.
    await clock.sleep(pause, signal).catch(() => {})
    if (!signal.aborted) continue
    report({ event: 'stopped' })
    return { exit: 0 }
  }
}

async function runOnce(child: Child, watching: SupervisorOptions): Promise<RunResult> {
  const { clock, report, signal, heartbeats, onTrial } = watching
  const began = clock.now()
  let hasSaidFarewell = false
  const staged = Promise.withResolvers<RunResult>()
  const silence = killWhenSilent(child, watching.settings().silenceSeconds)
  child.onMessage((message) => {
    silence.heard()
    // The process that tries this binary judges it by its agent's messages.
    if (onTrial) void notifyWatchdog(message)
    if (message.said === 'alive') heartbeats.heard(message)
    if (message.said === 'farewell') hasSaidFarewell = true
    if (message.said === 'staged' && !onTrial) staged.resolve({ kind: 'staged' })
  })
  watching.staged.on(() => staged.resolve({ kind: 'staged' }))
  const over = new AbortController()
  const asked = new Promise<RunResult>((resolve) => {
    const stop = async (): Promise<void> => {
      const { code } = await child.stop()
      // It was killed before it could report that itself.
      if (code === null) report({ event: 'stopped' })
      resolve({ kind: 'over', code: code ?? 0 })
    }
    if (signal.aborted) void stop()
    signal.addEventListener('abort', stop, { once: true, signal: over.signal })
  })
  const ended = child.ended.then((end): RunResult => {
    // A signal to all processes of the terminal stopped it.
    if (signal.aborted) return { kind: 'over', code: end.code ?? 0 }
    if (hasSaidFarewell) return { kind: 'over', code: end.code ?? 1 }
    const crash = { at: clock.now(), lived: clock.now() - began, hung: silence.wasTooLong() }
    return { kind: 'crashed', crash, reason: crash.hung ? 'it became silent' : describeExit(end) }
  })
  try {
    return await Promise.race([asked, ended, staged.promise])
  } finally {
    over.abort()
    silence[Symbol.dispose]()
  }
}

/**
 * Kills a process that stays silent for too long. Time is counted in timer ticks of this process, not by a clock:
 * neither a clock set forward nor a suspended machine makes an agent look silent.
 */
function killWhenSilent(child: Child, seconds: number) {
  const ticks = 20
  let silentTicks = 0
  let killed = false
  const timer = setInterval(
    () => {
      silentTicks += 1
      if (silentTicks <= ticks) return
      killed = true
      child.kill()
    },
    (seconds * 1000) / ticks,
  )
  return {
    heard: (): void => {
      silentTicks = 0
    },
    wasTooLong: (): boolean => killed,
    [Symbol.dispose]: (): void => clearInterval(timer),
  }
}
