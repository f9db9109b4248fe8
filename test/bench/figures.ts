/** One line of the result. */
export type Row = {
  bench: string
  subject: string
  /** What the ratio is to. */
  against?: string
  ratio?: Spread
  /** Absolute, of this machine at this time. */
  figures: Record<string, string | number>
  aim?: string
  met?: boolean
}

export type Spread = { median: number; min: number; max: number }

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b)
  return { median: quantile(sorted, 0.5), min: sorted[0] ?? Number.NaN, max: sorted.at(-1) ?? Number.NaN }
}

export const median = (values: readonly number[]): number => spreadOf(values).median

/** Of sorted numbers, the nearest rank. */
export function quantile(sorted: ArrayLike<number>, part: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}

/** The place of a row's ratio, or of an absolute figure, against its aim. */
export const atLeast = (ratio: number, min: number) => ({ aim: `≥ ${min}`, met: ratio >= min })
export const atMost = (value: number, max: number, unit = '') => ({
  aim: `≤ ${max}${unit}`,
  met: value <= max,
})

export const rounded = (value: number): string => {
  if (!Number.isFinite(value)) return '?'
  if (value >= 100) return Math.round(value).toLocaleString('en-US')
  return value.toFixed(value >= 10 ? 1 : 2)
}

export function tableOf(rows: readonly Row[]): string {
  const head = ['BENCH', 'SUBJECT', 'RATIO', 'MIN–MAX', 'TO', 'AIM', 'MET', 'FIGURES']
  const lines = rows.map(({ bench, subject, against = '', ratio, aim = '', met, figures }) => [
    bench,
    subject,
    ratio ? rounded(ratio.median) : '',
    ratio ? `${rounded(ratio.min)}–${rounded(ratio.max)}` : '',
    against,
    aim,
    met === undefined ? '' : met ? 'yes' : 'NO',
    Object.entries(figures)
      .map(([name, value]) => `${name} ${typeof value === 'number' ? rounded(value) : value}`)
      .join(', '),
  ])
  const all = [head, ...lines]
  const widths = head.map((_, column) => Math.max(...all.map((line) => line[column]!.length)))
  return all
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}
