import type { ChalkInstance } from 'chalk'

export type Style = {
  heading: (text: string) => string
  faint: (text: string) => string
  good: (text: string) => string
  bad: (text: string) => string
  careful: (text: string) => string
}

const same = (text: string): string => text

export const plain: Style = { heading: same, faint: same, good: same, bad: same, careful: same }

/** Whether a stream shows colour: FORCE_COLOR, then NO_COLOR, then a terminal that is not dumb. */
export function hasColor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR !== undefined) return env.FORCE_COLOR !== '0' && env.FORCE_COLOR !== 'false'
  return !env.NO_COLOR && stream.isTTY === true && env.TERM !== 'dumb'
}

export async function styleFor(stream: { isTTY?: boolean }): Promise<Style> {
  if (!hasColor(stream)) return plain
  const { Chalk } = await import('chalk')
  const chalk: ChalkInstance = new Chalk({ level: 1 })
  return { heading: chalk.bold, faint: chalk.dim, good: chalk.green, bad: chalk.red, careful: chalk.yellow }
}

const tones: Record<string, keyof Style> = {
  active: 'good',
  online: 'good',
  success: 'good',
  sound: 'good',
  suspended: 'bad',
  churned: 'bad',
  offline: 'bad',
  decommissioned: 'bad',
  quarantined: 'bad',
  failure: 'bad',
  denied: 'bad',
  tampered: 'bad',
  pending: 'careful',
  trial: 'careful',
  maintenance: 'careful',
  updating: 'careful',
}

/** The states of the product in their colours; other words as they are. */
export function toned(style: Style, word: string): string {
  const tone = Object.hasOwn(tones, word) ? tones[word] : undefined
  return tone ? style[tone](word) : word
}
