import type { Rollout, RolloutProgress } from '../../agents/rollouts/contract.ts'
import { formatNumber } from '../progress.ts'
import type { Style } from '../style.ts'
import { displayWidth, escapeToOneLine } from '../table.ts'

type Wave = RolloutProgress['waves'][number]

/** The status of a rollout, for people. `width`: columns of the terminal, which the bars leave to the numbers. */
export function formatRollout(it: RolloutProgress, style: Style, now: number, width?: number): string {
  const parts = [
    [headline(it, style)],
    formatWaves(it, style, width),
    failureLines(it, style),
    [windowLine(it), nextLine(it, now)].filter((line) => line !== undefined),
  ]
  return `${parts
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`
}

const tones: Record<Rollout['status'], keyof Style> = {
  preparing: 'warning',
  running: 'good',
  halted: 'bad',
  completed: 'good',
  aborted: 'bad',
  rolled_back: 'bad',
}

const words = (status: Rollout['status']): string => status.replace('_', ' ')

export function headline(it: RolloutProgress, style: Style): string {
  const { version, status, wave, waves, waveBeganAt, endedAt, haltReason } = it
  const isOpen = status === 'running' || status === 'halted'
  const where = isOpen && wave !== null ? `, wave ${wave} of ${waves.length} since ${waveBeganAt}` : ''
  const ended = endedAt === null ? '' : ` at ${endedAt}`
  const why = haltReason === null ? '' : `\n${style.bad(escapeToOneLine(haltReason))}`
  const state = style[tones[status]](words(status))
  return `${style.heading(`Rollout of ${escapeToOneLine(version)}`)}: ${state}${where}${ended}${why}`
}

const longestBar = 20
const shortestBar = 5
const barColumn = 3

/** The waves with their bars and counts; at most `max` of them, around the open one. */
export function formatWaves(
  it: RolloutProgress,
  style: Style,
  width?: number,
  max = it.waves.length,
): string[] {
  const { waves, wave: open, status } = it
  const from = Math.max(0, Math.min((open ?? 1) - 2, waves.length - max))
  const isOpen = status === 'running' || status === 'halted'
  const hasLeft = waves.some(({ withdrawn }) => withdrawn > 0)
  const counts = [
    'updated',
    'soaking',
    'offered',
    'waiting',
    'failed',
    ...(hasLeft ? ['withdrawn'] : []),
  ] as const
  const rows = waves.map((wave, n) => [
    `${isOpen && open === n + 1 ? '>' : ' '} ${n + 1}`,
    nameOf(wave),
    wave.devices === null ? '-' : formatNumber(wave.devices),
    '',
    ...counts.map((count) => formatNumber(wave[count as keyof Wave] as number)),
  ])
  const table = [['  WAVE', '', 'DEVICES', '', ...counts.map((one) => one.toUpperCase())], ...rows]
  const widths = table[0]!.map((_, i) => Math.max(...table.map((row) => displayWidth(row[i]!))))
  const others = widths.reduce((sum, one) => sum + one + 2, 0)
  // Two brackets around it.
  const room = width === undefined ? longestBar : width - others - 2
  const barLength = Math.min(longestBar, Math.max(shortestBar, room))
  widths[barColumn] = barLength + 2
  for (const [n, row] of rows.entries()) row[barColumn] = barOf(waves[n]!, barLength)
  const failed = 4 + counts.indexOf('failed')
  const shown = table.filter((_, n) => n === 0 || (n > from && n <= from + max))
  return shown.map((row, n) =>
    row
      .map((cell, i) => {
        const padding = ' '.repeat(widths[i]! - displayWidth(cell))
        const isNumber = i === 2 || i > barColumn
        const text = isNumber ? padding + cell : cell + padding
        if (n === 0) return style.heading(text)
        if (i === barColumn) return style.good(text)
        return i === failed && cell !== '0' ? style.bad(text) : text
      })
      .join('  ')
      .trimEnd(),
  )
}

const nameOf = ({ percent, filterName }: Wave): string =>
  percent === null ? escapeToOneLine(filterName ?? '') : `${percent} %`

/** The part of a wave that has the version. */
function barOf({ devices, updated, soaking }: Wave, barLength: number): string {
  const there = updated + soaking
  const filled = devices === null || devices === 0 ? 0 : Math.floor((there / devices) * barLength)
  return `[${'#'.repeat(filled)}${'-'.repeat(barLength - filled)}]`
}

function failureLines({ failures, status }: RolloutProgress, style: Style): string[] {
  const { counted, allowed, reasons } = failures
  if (reasons.length === 0) return []
  const may = status === 'running' && allowed !== null ? `, ${formatNumber(allowed)} of this wave may` : ''
  const width = Math.max(...reasons.map(({ devices }) => formatNumber(devices).length))
  return [
    `${style.heading('Failed')}: ${formatNumber(counted)} not accepted${may}`,
    ...reasons.map(
      ({ reason, devices }) => `  ${formatNumber(devices).padStart(width)}  ${escapeToOneLine(reason)}`,
    ),
  ]
}

function windowLine({ awaitingWindow }: RolloutProgress): string | undefined {
  // An older service does not say.
  const { devices, nextOpensAt } = awaitingWindow ?? { devices: 0, nextOpensAt: null }
  if (devices === 0) return undefined
  const who = devices === 1 ? '1 device waits for its' : `${formatNumber(devices)} devices wait for their`
  const next = nextOpensAt === null ? 'none opens' : `next opens ${nextOpensAt}`
  return `Waiting: ${who} maintenance window${devices === 1 ? '' : 's'}, ${next}`
}

function nextLine({ next }: RolloutProgress, now: number): string | undefined {
  if (next === null) return undefined
  const what = {
    draw: 'its first wave opens',
    open_wave: `wave ${next.wave} opens`,
    complete: 'it is completed',
    decide: 'nothing by itself',
    return: 'it is back where it was',
  }[next.step]
  return `Next: ${what}${when(next.at, now)}: ${escapeToOneLine(next.because)}`
}

function when(at: string | null, now: number): string {
  if (at === null) return ''
  const minutes = Math.ceil((Date.parse(at) - now) / 60_000)
  return minutes > 0 ? `, not before ${at} (in ${minutes} min)` : ''
}

const counted = ['updated', 'soaking', 'offered', 'waiting', 'failed'] as const

/** The same in one line, for output that cannot be redrawn. */
export function formatRolloutLine({ status, version, wave, waves }: RolloutProgress): string {
  const sums = counted.map(
    (count) => `${formatNumber(waves.reduce((all, one) => all + one[count], 0))} ${count}`,
  )
  const where = wave === null ? '' : `, wave ${wave} of ${waves.length}`
  return `${escapeToOneLine(version)} ${words(status)}${where}: ${sums.join(', ')}\n`
}
