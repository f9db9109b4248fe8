import { readSecret } from '../../cli/ask.ts'
import { exitCodes, usageError } from '../../cli/exit-codes.ts'
import { printNote, toJson, writeStdout } from '../../cli/print.ts'
import { resolveSettings, type Settings } from '../../cli/settings.ts'
import { clearStatus, showStatus } from '../../cli/stderr-notes.ts'
import { isLoopbackHost, socketOptions } from '../../cli/transport.ts'
import { agentDialer } from '../connection.ts'
import { loadFleet, type SavedFleet, saveFleet } from './fleet-file.ts'
import { openHttpPool } from './http-pool.ts'
import { maxAgents, type Plan, parseFailures, parsePlanDuration, parsePlatforms } from './plan.ts'
import { type SimulationEvent, simulate } from './run.ts'
import { formatStatus, formatSummary } from './summary.ts'

/** Flags of `svc agent simulate`. */
export type SimulateFlags = {
  count: number
  'enrollment-key'?: string | undefined
  url?: string | undefined
  'allow-remote': boolean
  interval: string
  websockets: number
  logs: number
  events: number
  version?: string | undefined
  platform?: string | undefined
  failures?: string | undefined
  'update-after': string
  for?: string | undefined
  state?: string | undefined
  seed?: number | undefined
  json: boolean
}

/** Seconds between two lines of progress: on a terminal, and as JSON. */
const progress = { terminal: 1, json: 10 }

/** The simulation as a command: reads the flags, prints progress and the summary. */
export async function simulateAtTerminal(flags: SimulateFlags, version: string): Promise<void> {
  const saved = flags.state === undefined ? undefined : loadFleet(flags.state)
  const settings = resolveSettings({ url: flags.url })
  const url = addressOf(settings, saved, flags)
  const made = makeOf(flags, saved)
  const plan = planOf(flags, made, version)
  const caFile = settings.caFile.value
  const concurrency = Math.min(64, Math.max(8, Math.ceil((plan.count * 1000) / plan.intervalMs / 10)))
  const stop = new AbortController()
  const end = (): void => stop.abort()
  // Once each: a second Ctrl-C terminates without waiting for the summary.
  process.once('SIGTERM', end).once('SIGINT', end)
  const view = flags.json ? asLines() : onTerminal()
  const summary = await simulate({
    url,
    plan,
    concurrency: concurrency,
    known: saved?.agents ?? [],
    signal: stop.signal,
    wire: await openHttpPool({ url, version: plan.version, caFile, connections: concurrency + 8 }),
    dial: agentDialer({ url, version: plan.version }, (at) => socketOptions(at, { caFile })),
    enrollmentKey: () => keyFrom(flags['enrollment-key']),
    report: view.show,
    progressMs: 1000 * (flags.json ? progress.json : progress.terminal),
    save: (agents) => {
      if (flags.state !== undefined) saveFleet(flags.state, { url, ...made, agents })
    },
  }).finally(() => {
    view.end()
    process.off('SIGTERM', end).off('SIGINT', end)
  })
  await writeStdout(flags.json ? `${toJson({ event: 'summary', ...summary })}\n` : formatSummary(summary))
  if (summary.missed > 0) process.exitCode = exitCodes.failure
}

/** @throws a usage error for an address of another machine, unless that is allowed */
function addressOf({ url }: Settings, saved: SavedFleet | undefined, flags: SimulateFlags): string {
  const isSaid = url.from === 'flag' || url.from === 'env'
  const address = isSaid ? url.value : (saved?.url ?? url.value)
  if (saved && saved.url !== address) {
    throw usageError(
      `The fleet in ${flags.state} is enrolled at ${saved.url}`,
      'use another --state for another service',
    )
  }
  if (!isLoopbackHost(new URL(address).hostname) && !flags['allow-remote']) {
    throw usageError(`${address} is not this machine`, '--allow-remote lets a fleet report to another one')
  }
  return address
}

type Make = { seed: number; platform: string }

/** Parameters of the machines of a fleet: existing machines must not change. */
function makeOf(flags: SimulateFlags, saved: SavedFleet | undefined): Make {
  const { seed = saved?.seed ?? 1, platform = saved?.platform ?? 'linux/x64' } = flags
  if (saved && (seed !== saved.seed || platform !== saved.platform)) {
    throw usageError(
      `The fleet in ${flags.state} was created with --seed ${saved.seed} --platform ${saved.platform}`,
    )
  }
  return { seed, platform }
}

function planOf(flags: SimulateFlags, { seed, platform }: Make, version: string): Plan {
  const { count, websockets, logs, events } = flags
  if (websockets > count) throw usageError('--websockets cannot be more than --count')
  return {
    count,
    websockets,
    logsPerMinute: logs,
    eventsPerMinute: events,
    seed,
    intervalMs: parsePlanDuration(flags.interval, '--interval'),
    version: flags.version ?? version,
    platforms: parsePlatforms(platform),
    failures: parseFailures(flags.failures),
    updateMs: parsePlanDuration(flags['update-after'], '--update-after'),
    forMs: flags.for === undefined ? undefined : parsePlanDuration(flags.for, '--for'),
  }
}

async function keyFrom(flag: string | undefined): Promise<string> {
  if (flag !== undefined) return readSecret(flag, '--enrollment-key')
  const { SVC_ENROLLMENT_KEY } = process.env
  if (SVC_ENROLLMENT_KEY) return SVC_ENROLLMENT_KEY
  throw usageError(
    'Missing --enrollment-key',
    `there are agents to enroll: give -, @file or SVC_ENROLLMENT_KEY; svc enroll create --max-usage N creates one for up to ${maxAgents}`,
  )
}

type View = { show(event: SimulationEvent): void; end(): void }

const asLines = (): View => ({
  show: (event) => void process.stdout.write(`${toJson(event)}\n`),
  end: () => {},
})

/** One line that is redrawn; without a terminal, only the important lines. */
function onTerminal(): View {
  const isSeen = process.stderr.isTTY === true && process.env.TERM !== 'dumb' && !process.env.CI
  let hasSaid = false
  return {
    show(event) {
      if (event.event === 'progress') {
        if (isSeen) showStatus(formatStatus(event).slice(0, (process.stderr.columns ?? 80) - 1))
        return
      }
      if (event.event === 'enrolled')
        return printNote(`${event.agents} agents are enrolled; stop with Ctrl-C`)
      if (hasSaid) return
      hasSaid = true
      printNote(
        `The service requests a pause of ${event.seconds} s: it limits requests by client address. For simulations, start it with RATE_LIMIT_IP=off RATE_LIMIT_ENROLL_IP=off`,
      )
    },
    end: clearStatus,
  }
}
