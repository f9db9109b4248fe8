import { inspect } from 'node:util'
import { allowSequence } from '../core/terminal.ts'

export type Style = {
  heading: (text: string) => string
  dim: (text: string) => string
  good: (text: string) => string
  bad: (text: string) => string
  warning: (text: string) => string
}

const same = (text: string): string => text

export const plainStyle: Style = { heading: same, dim: same, good: same, bad: same, warning: same }

function styled(name: keyof typeof inspect.colors): (text: string) => string {
  const [on, off] = inspect.colors[name]!
  return (text) => allowSequence(`\u001b[${on}m`) + text + allowSequence(`\u001b[${off}m`)
}

const colors: Style = {
  heading: styled('bold'),
  dim: styled('dim'),
  good: styled('green'),
  bad: styled('red'),
  warning: styled('yellow'),
}

/** Readable on light and dark, and apart from the colors of states. */
const hues = (['cyan', 'blue', 'magentaBright', 'cyanBright', 'blueBright'] as const).map(styled)

/** A color that means nothing but tells names apart: the same for the same name. */
export function hueOf(style: Style, name: string): (text: string) => string {
  if (style === plainStyle) return same
  let sum = 0
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)!) % 65_521
  return hues[sum % hues.length]!
}

/** Whether a stream supports color: FORCE_COLOR, then NO_COLOR, then a terminal that is not dumb. */
function hasColor(stream: { isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR !== undefined) return env.FORCE_COLOR !== '0' && env.FORCE_COLOR !== 'false'
  return !env.NO_COLOR && stream.isTTY === true && env.TERM !== 'dumb'
}

export const styleFor = (stream: { isTTY?: boolean }): Style => (hasColor(stream) ? colors : plainStyle)

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
  failed: 'bad',
  critical: 'bad',
  pending: 'warning',
  paused: 'warning',
  trial: 'warning',
  maintenance: 'warning',
  updating: 'warning',
}

/** Colors known status words, also where `shown` is cut; other words are unchanged. */
export function colorStatus(style: Style, word: string, shown = word): string {
  const tone = Object.hasOwn(tones, word) ? tones[word] : undefined
  return tone ? style[tone](shown) : shown
}
