import type { Overview } from '../../overview/contract.ts'
import { formatNumber } from '../progress.ts'
import { formatWaves, headline } from '../rollouts/format.ts'
import type { Style } from '../style.ts'
import { displayWidth, escapeToOneLine } from '../table.ts'
import { relativeTime } from '../times.ts'
import type { History, SeriesName } from './history.ts'

/** What cannot be drawn from the overview: who is asked, and how it was before. */
export type View = { title: string; history: History; style: Style; columns: number; rows: number }

const labelWidth = 14
const valueWidth = 10
const gap = '  '

/** The screen of `svc top`: sections, with empty lines between them where there is room. */
export function drawTop(it: Overview, view: View): string[] {
  const { title, style, columns, rows } = view
  const clock = `${it.time.slice(0, 19).replace('T', ' ')}Z`
  const space = ' '.repeat(Math.max(1, columns - displayWidth(title) - clock.length))
  const sections = [
    [`${style.heading(escapeToOneLine(title))}${space}${style.dim(clock)}`],
    deviceLines(it, view),
    alertLines(it, view),
    webhookLines(it, view),
    rolloutLines(it, view),
    auditLines(it, view),
    it.leftOut.map(({ part, reason }) => style.dim(`Not shown: ${part} (${escapeToOneLine(reason)})`)),
  ].filter((lines) => lines.length > 0)
  const airy = sections.flatMap((lines, n) => (n === 0 ? lines : ['', ...lines]))
  return airy.length <= rows ? airy : sections.flat()
}

/** `label  value  more`, the value right-aligned. */
function row(label: string, value: string, more = '', tone = (text: string) => text): string {
  const space = ' '.repeat(Math.max(0, valueWidth - value.length))
  return `${label.padEnd(labelWidth)}${space}${tone(value)}${more && gap}${more}`
}

const headingRow = (style: Style, label: string, value: string, more = ''): string =>
  style.heading(label.padEnd(labelWidth)) + row('', value, more).slice(labelWidth)

/** A row whose rest is how the number was before. */
function seriesRow(
  label: string,
  name: SeriesName,
  { history, columns }: View,
  { tone, decimals = 0 }: { tone: (text: string) => string; decimals?: number },
): string {
  const newest = history.newest(name)
  const value = newest === undefined ? '-' : decimals > 0 ? newest.toFixed(decimals) : formatNumber(newest)
  const line = history.line(name, columns - labelWidth - valueWidth - gap.length)
  return row(`  ${label}`, value, line.trim() && tone(line))
}

/** `2 critical, 1 high`: those that are not 0. */
const counted = (counts: Record<string, number>, but: readonly string[] = []): string =>
  Object.entries(counts)
    .filter(([name, count]) => count > 0 && !but.includes(name))
    .map(([name, count]) => `${formatNumber(count)} ${name}`)
    .join(', ')

function deviceLines({ devices }: Overview, view: View): string[] {
  if (!devices) return []
  const { style } = view
  const others = counted(devices.byStatus, ['online', 'offline', 'updating', 'decommissioned'])
  return [
    headingRow(style, 'DEVICES', formatNumber(devices.total), others),
    seriesRow('online', 'online', view, { tone: style.good }),
    seriesRow('offline', 'offline', view, { tone: style.bad }),
    seriesRow('updating', 'updating', view, { tone: style.warning }),
    seriesRow('heartbeats/s', 'heartbeats', view, { tone: style.dim, decimals: 2 }),
  ]
}

function alertLines({ alerts }: Overview, view: View): string[] {
  if (!alerts) return []
  const { style } = view
  const { active, acknowledged, bySeverity } = alerts
  return [
    headingRow(style, 'ALERTS', formatNumber(active + acknowledged), counted(bySeverity)),
    seriesRow('active', 'alerts', view, { tone: style.bad }),
  ]
}

function webhookLines({ webhooks }: Overview, view: View): string[] {
  if (!webhooks) return []
  const { style } = view
  const { byStatus, waiting } = webhooks
  const total = Object.values(byStatus).reduce((all, one) => all + one, 0)
  const states = [counted(byStatus), ...(waiting > 0 ? [`${formatNumber(waiting)} deliveries wait`] : [])]
  return [
    headingRow(style, 'WEBHOOKS', formatNumber(total), states.filter(Boolean).join('; ')),
    seriesRow('deliveries/s', 'succeeded', view, { tone: style.good, decimals: 2 }),
    seriesRow('failures/s', 'failed', view, { tone: style.bad, decimals: 2 }),
  ]
}

function rolloutLines({ rollout }: Overview, { style, columns }: View): string[] {
  if (!rollout) return []
  return [...headline(rollout, style).split('\n').slice(0, 2), ...formatWaves(rollout, style, columns, 3)]
}

const verdictTones: Record<string, keyof Style> = {
  tampered: 'bad',
  unverifiable: 'warning',
  sound: 'good',
}

function auditLines({ audit, time }: Overview, { style }: View): string[] {
  if (!audit) return []
  const { chains, entries, head, verdicts, verifiedAt } = audit
  const worst = ['tampered', 'unverifiable', 'pending', 'sound'].find(
    (verdict) => verdicts[verdict as keyof typeof verdicts] > 0,
  )
  const newest = head ? `; newest ${formatNumber(head.seq)}, ${head.checksum.slice(0, 12)}` : ''
  const of = `in ${formatNumber(chains)} ${chains === 1 ? 'chain' : 'chains'}${newest}`
  const shown = worst ?? 'none yet'
  const tone = style[verdictTones[shown] ?? 'dim']
  const ago = verifiedAt === null ? '' : `last verified ${relativeTime(verifiedAt, Date.parse(time))}`
  return [
    headingRow(style, 'AUDIT', formatNumber(entries), of),
    row('  verdict', shown, [counted(verdicts), ago].filter(Boolean).join(', '), tone),
  ]
}
