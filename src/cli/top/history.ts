import sparkly from 'sparkly'
import type { Overview } from '../../overview/contract.ts'

/** As many as the widest terminal shows; older samples are forgotten. */
const maxSamples = 500

const series = {
  online: ({ devices }: Overview) => devices?.byStatus.online,
  offline: ({ devices }: Overview) => devices?.byStatus.offline,
  updating: ({ devices }: Overview) => devices?.byStatus.updating,
  heartbeats: ({ devices }: Overview) => devices?.heartbeatsPerSecond,
  alerts: ({ alerts }: Overview) => alerts?.active,
} satisfies Record<string, (it: Overview) => number | undefined>

const rates = {
  succeeded: ({ webhooks }: Overview) => webhooks?.succeeded,
  failed: ({ webhooks }: Overview) => webhooks?.failed,
} satisfies Record<string, (it: Overview) => number | undefined>

export type SeriesName = keyof typeof series | keyof typeof rates

/** What was seen since the command began. */
export class History {
  readonly #samples: { [name in SeriesName]?: number }[] = []
  #last: Overview | undefined

  add(it: Overview): void {
    const sample: { [name in SeriesName]?: number } = {}
    for (const [name, of] of Object.entries(series)) {
      const value = of(it)
      if (value !== undefined) sample[name as SeriesName] = value
    }
    for (const [name, of] of Object.entries(rates)) {
      const value = this.#last && perSecond(of, this.#last, it)
      if (value !== undefined) sample[name as SeriesName] = value
    }
    this.#last = it
    this.#samples.push(sample)
    if (this.#samples.length > maxSamples) this.#samples.shift()
  }

  /** The newest value; undefined for a rate that takes two samples. */
  newest(name: SeriesName): number | undefined {
    return this.#samples.at(-1)?.[name]
  }

  /** The newest samples as a line from 0 to the largest of them. */
  line(name: SeriesName, width: number): string {
    const values = this.#samples.slice(-Math.max(1, width)).map((sample) => sample[name] ?? '')
    return sparkly(values, { minimum: 0 })
  }
}

/** A total falls when a webhook is deleted. */
function perSecond(
  of: (it: Overview) => number | undefined,
  before: Overview,
  now: Overview,
): number | undefined {
  const seconds = (Date.parse(now.time) - Date.parse(before.time)) / 1000
  const [was, is] = [of(before), of(now)]
  if (was === undefined || is === undefined || seconds <= 0) return undefined
  return Math.max(0, is - was) / seconds
}
