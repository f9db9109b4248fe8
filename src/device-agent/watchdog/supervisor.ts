import type { Clock } from '../clock.ts'
import type { Report } from '../events.ts'
import type { Settings } from '../settings.ts'
import type { BinarySwapper } from './binary-swap.ts'
import { type Child, describeExit } from './child.ts'
import { type Crash, isCrashLooping, restartDelay } from './crashes.ts'
import type { WatchdogHeartbeats } from './heartbeats.ts'
import { notifyWatchdog } from './messages.ts'

export type SupervisorOptions = {
  /** Starts the agent proper. */
  start: () => Child
  settings: () => Settings
  clock: Clock
  report: Report
  signal: AbortSignal
  pulse: Pick<WatchdogHeartbeats, 'heard'>
  /** Without it no binary ever takes the place of this one. */
  installation: BinarySwapper | undefined
  /** This watchdog is itself on trial: it does not mend what it starts. */
  onTrial: boolean
  /** What the watchdog itself has got in the agent's place. */
  staged: StagedSignal
}

/** Another binary that is to be tried, as soon as there is a moment for it. */
export function stagedSignal() {
  let waits = false
  let tell = (): void => {}
  return {
    add(): void {
      waits = true
      tell()
    },
    take(): boolean {
      const waited = waits
      waits = false
      return waited
    },
    /** Calls back when there is one. */
    on(listener: () => void): void {
      tell = listener
    },
  }
}
type StagedSignal = ReturnType<typeof stagedSignal>

/** How watching ended: with an exit code, or because this process is to become the binary that is in place now. */
export type SupervisorOutcome = { exit: number } | 'become'

type RunResult =
  | { kind: 'over'; code: number }
  | { kind: 'crashed'; crash: Crash; reason: string }
  | { kind: 'staged' }

/** Starts the agent and sees to it that it runs, until the signal aborts or the agent says that there is no point. */
export async function supervise(watching: SupervisorOptions): Promise<SupervisorOutcome> {
  const { clock, report, signal, installation, onTrial } = watching
  const crashes: Crash[] = []
  if (await installation?.recover()) return 'become'
  for (;;) {
    // An agent that cannot be started leaves no other moment.
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
    await clock.sleep(pause, signal).catch(() => {})
    if (!signal.aborted) continue
    report({ event: 'stopped' })
    return { exit: 0 }
  }
}

async function runOnce(child: Child, watching: SupervisorOptions): Promise<RunResult> {
  const { clock, report, signal, pulse, onTrial } = watching
  const began = clock.now()
  let hasSaidFarewell = false
  const staged = Promise.withResolvers<RunResult>()
  const silence = killWhenSilent(child, watching.settings().silenceSeconds)
  child.onMessage((message) => {
    silence.heard()
    // Whoever tries this binary goes by what its agent says.
    if (onTrial) void notifyWatchdog(message)
    if (message.said === 'alive') pulse.heard(message)
    if (message.said === 'farewell') hasSaidFarewell = true
    if (message.said === 'staged' && !onTrial) staged.resolve({ kind: 'staged' })
  })
  watching.staged.on(() => staged.resolve({ kind: 'staged' }))
  const over = new AbortController()
  const asked = new Promise<RunResult>((resolve) => {
    const stop = async (): Promise<void> => {
      const { code } = await child.stop()
      // It had not got so far as to say so itself.
      if (code === null) report({ event: 'stopped' })
      resolve({ kind: 'over', code: code ?? 0 })
    }
    if (signal.aborted) void stop()
    signal.addEventListener('abort', stop, { once: true, signal: over.signal })
  })
  const ended = child.ended.then((end): RunResult => {
    // Asked to: by a signal that came to all processes of this terminal.
    if (signal.aborted) return { kind: 'over', code: end.code ?? 0 }
    if (hasSaidFarewell) return { kind: 'over', code: end.code ?? 1 }
    const crash = { at: clock.now(), lived: clock.now() - began, hung: silence.wasTooLong() }
    return { kind: 'crashed', crash, reason: crash.hung ? 'it said nothing any more' : describeExit(end) }
  })
  try {
    return await Promise.race([asked, ended, staged.promise])
  } finally {
    over.abort()
    silence[Symbol.dispose]()
  }
}

/**
 * Kills what says nothing for so long. Time is counted in turns of this process, not read from a clock: neither a clock that
 * is put forward nor a machine that was asleep makes an agent look silent.
 */
function killWhenSilent(child: Child, seconds: number) {
  const turns = 20
  let quiet = 0
  let killed = false
  const timer = setInterval(
    () => {
      quiet += 1
      if (quiet <= turns) return
      killed = true
      child.kill()
    },
    (seconds * 1000) / turns,
  )
  return {
    heard: (): void => {
      quiet = 0
    },
    wasTooLong: (): boolean => killed,
    [Symbol.dispose]: (): void => clearInterval(timer),
  }
}
