import { formatNumber } from '../../cli/progress.ts'
import { type Fleet, isOnline } from './fleet.ts'
import type { Counts, Times } from './tally.ts'

/** State of a fleet; with --json it is output, so a field is never renamed. */
export type FleetStatus = Counts &
  Times & {
    agents: number
    online: number
    /** Since the last report, or since the start. */
    heartbeatsPerSecond: number
    /** Number of agents by version. */
    versions: Record<string, number>
  }

export type Summary = FleetStatus & {
  seconds: number
  /** Number of failures by reason: the status and code of a reply, or why there was none. */
  reasons: Record<string, number>
  memoryMb: number
}

export function fleetStatus(
  { plan, agents, tally }: Fleet,
  times: Times,
  beatsPerSecond: number,
): FleetStatus {
  const versions = new Map<string, number>()
  let online = 0
  for (const agent of agents) {
    if (agent === undefined || agent.state === 'gone') continue
    versions.set(agent.version, (versions.get(agent.version) ?? 0) + 1)
    if (isOnline(agent)) online += 1
  }
  const { counts } = tally
  const { updates, connections } = counts
  return {
    agents: plan.count,
    online,
    ...counts,
    // Copies: a report must not change afterwards.
    updates: { ...updates },
    connections: { ...connections },
    heartbeatsPerSecond: rounded(beatsPerSecond),
    p50Ms: rounded(times.p50Ms),
    p99Ms: rounded(times.p99Ms),
    maxMs: rounded(times.maxMs),
    versions: Object.fromEntries([...versions].sort(([a], [b]) => (a < b ? -1 : 1))),
  }
}

/** One line of progress. */
export function formatStatus(standing: FleetStatus): string {
  const { agents, enrolled, online, heartbeatsPerSecond, late, missed, failures, p50Ms, p99Ms } = standing
  const { updates, connections } = standing
  const some = (count: number, what: string) => (count > 0 ? [`${formatNumber(count)} ${what}`] : [])
  return [
    ...(enrolled < agents ? [`${formatNumber(enrolled)} of ${formatNumber(agents)} enrolled`] : []),
    `${formatNumber(online)} online`,
    `${heartbeatsPerSecond} heartbeats/s`,
    ...some(late, 'late'),
    ...some(missed, 'missed'),
    ...some(failures, failures === 1 ? 'failure' : 'failures'),
    `p50 ${p50Ms} ms, p99 ${p99Ms} ms`,
    ...some(connections.open, 'connected'),
    ...some(updates.begun - updates.done - updates.failed, 'updating'),
    ...(Object.keys(standing.versions).length > 1 ? [versionsOf(standing.versions)] : []),
  ].join(' · ')
}

const versionsOf = (versions: Record<string, number>): string =>
  Object.entries(versions)
    .map(([version, count]) => `${version}: ${formatNumber(count)}`)
    .join(', ')

/** The report at the end. */
export function formatSummary(summary: Summary): string {
  const { agents, enrolled, online, refused, heartbeats, heartbeatsPerSecond, late, missed } = summary
  const { p50Ms, p99Ms, maxMs, failures, updates, connections, commands, liveQueries } = summary
  const lines: [string, string | false][] = [
    [
      'Agents',
      `${formatNumber(enrolled)} of ${formatNumber(agents)}, ${formatNumber(online)} online${refused > 0 ? `, ${formatNumber(refused)} refused` : ''}`,
    ],
    [
      'Heartbeats',
      `${formatNumber(heartbeats)} in ${Math.round(summary.seconds)} s, ${heartbeatsPerSecond}/s; ${formatNumber(late)} late, ${formatNumber(missed)} missed`,
    ],
    ['Answered in', `p50 ${p50Ms} ms, p99 ${p99Ms} ms, at most ${maxMs} ms`],
    ['Failures', formatNumber(failures) + listOf(summary.reasons)],
    [
      'Updates',
      updates.begun > 0 &&
        `${formatNumber(updates.begun)} begun, ${formatNumber(updates.done)} done, ${formatNumber(updates.failed)} failed`,
    ],
    ['Versions', versionsOf(summary.versions) || '-'],
    [
      'Connections',
      connections.opened > 0 &&
        `${formatNumber(connections.open)} open, ${formatNumber(connections.lost)} lost; ${formatNumber(liveQueries)} live queries`,
    ],
    ['Commands', commands > 0 && formatNumber(commands)],
    [
      'Sent',
      (summary.logs > 0 || summary.events > 0) &&
        `${formatNumber(summary.logs)} logs, ${formatNumber(summary.events)} events`,
    ],
    ['Memory', `${summary.memoryMb} MB`],
  ]
  return lines.flatMap(([name, text]) => (text === false ? [] : `${`${name}:`.padEnd(13)}${text}\n`)).join('')
}

function listOf(reasons: Record<string, number>): string {
  const frequent = Object.entries(reasons).sort(([, a], [, b]) => b - a)
  if (frequent.length === 0) return ''
  return `: ${frequent
    .slice(0, 5)
    .map(([reason, count]) => `${reason} (${formatNumber(count)})`)
    .join(', ')}`
}

const rounded = (value: number): number => Math.round(value * 10) / 10
