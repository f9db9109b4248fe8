import type { agentVersions } from '../agents/versions/contract.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import { printable } from './table.ts'

const listed = (builds: readonly string[]): string => builds.map(printable).join(', ')

/** What was registered. */
export function syncedLines(reply: Record<string, unknown>): string {
  const { version, synced } = reply as ReplyOf<typeof agentVersions.sync>
  return `${printable(version)} is registered for ${listed(synced)}\n`
}

/** What is offered now, and what was. */
export function promotedLines(reply: Record<string, unknown>): string {
  const { promoted, demoted } = reply as ReplyOf<typeof agentVersions.promote>
  const before = demoted.length > 0 ? `Instead of ${listed(demoted)}\n` : ''
  return `Offered to machines: ${listed(promoted)}\n${before}`
}
