import type { agentVersions } from '../agents/versions/contract.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import { escapeToOneLine } from './table.ts'

const formatBuilds = (builds: readonly string[]): string => builds.map(escapeToOneLine).join(', ')

/** The result of a sync. */
export function formatSynced(reply: Record<string, unknown>): string {
  const { version, synced, withheld } = reply as ReplyOf<typeof agentVersions.sync>
  const why = withheld === null ? '' : `It is not offered. ${escapeToOneLine(withheld)}\n`
  return `${escapeToOneLine(version)} is registered for ${formatBuilds(synced)}\n${why}`
}

/** The builds before and after a rollback. */
export function formatRolledBack(reply: Record<string, unknown>): string {
  const { promoted, demoted, endedRollout } = reply as ReplyOf<typeof agentVersions.rollback>
  const before = demoted.length > 0 ? `Instead of ${formatBuilds(demoted)}\n` : ''
  const ended = endedRollout === null ? '' : `The rollout ${escapeToOneLine(endedRollout)} is over\n`
  return `Machines with a newer version go back to it: ${formatBuilds(promoted)}\n${before}${ended}`
}

/** The builds before and after a promotion. */
export function formatPromoted(reply: Record<string, unknown>): string {
  const { promoted, demoted } = reply as ReplyOf<typeof agentVersions.promote>
  const before = demoted.length > 0 ? `Instead of ${formatBuilds(demoted)}\n` : ''
  return `Offered to machines: ${formatBuilds(promoted)}\n${before}`
}
