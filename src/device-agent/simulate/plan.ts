import type { Enrollment } from '../../agents/contract.ts'
import { usageError } from '../../cli/exit-codes.ts'
import { safeParse } from '../../core/schema.ts'
import { architecture, osType } from '../../devices/contract.ts'

export const maxAgents = 100_000

/** Ways in which an update can fail. */
export const failureModes = ['crash', 'silent', 'slow', 'wrong', 'refuse'] as const
export type FailureMode = (typeof failureModes)[number]

export type Platform = Pick<Enrollment, 'osType' | 'architecture'>
export type Weighted<T> = { of: T; weight: number }[]

/** The parameters of a simulated fleet. */
export type Plan = {
  count: number
  intervalMs: number
  websockets: number
  /** Entries per minute of all agents together. */
  logsPerMinute: number
  eventsPerMinute: number
  version: string
  platforms: Weighted<Platform>
  /** Share of the fleet with each failure mode, from 0 to 1. */
  failures: ReadonlyMap<FailureMode, number>
  /** Duration of an update. */
  updateMs: number
  /** Duration after all agents are enrolled; undefined: until it is stopped. */
  forMs: number | undefined
  seed: number
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** `500ms`, `20s`, `10m` or `2h` in milliseconds. @throws a usage error that names the flag */
export function parsePlanDuration(text: string, flag: string): number {
  const [, count, unit] = /^(\d{1,7}(?:\.\d{1,3})?)(ms|s|m|h)$/.exec(text.trim()) ?? []
  const ms = count && unit ? Number(count) * units[unit]! : 0
  if (ms > 0 && ms <= 7 * 86_400_000) return ms
  throw usageError(`${flag} takes a time such as 30s or 10m, not "${text}"`)
}

/** `crash=1%,silent=0.5%` as parts of the fleet. @throws a usage error that says what is wrong */
export function parseFailures(text: string | undefined): ReadonlyMap<FailureMode, number> {
  const shares = new Map<FailureMode, number>()
  for (const one of splitList(text)) {
    const [, mode, share] = /^([a-z]+)=(\d{1,3}(?:\.\d{1,3})?)%$/.exec(one) ?? []
    if (mode === undefined || share === undefined || Number(share) > 100) {
      throw usageError(`--failures takes parts of the fleet such as crash=1%,slow=2%, not "${one}"`)
    }
    if (!isMode(mode)) {
      throw usageError(`Unknown failure "${mode}"`, `failures: ${failureModes.join(', ')}`)
    }
    shares.set(mode, Number(share) / 100)
  }
  const sum = [...shares.values()].reduce((all, one) => all + one, 0)
  if (sum > 1.000001) throw usageError('--failures adds up to more than the whole fleet')
  return shares
}

const isMode = (text: string): text is FailureMode => (failureModes as readonly string[]).includes(text)

/** `linux/x64=80%,windows/x64=20%`, or without weights. @throws a usage error that says what is wrong */
export function parsePlatforms(text: string): Weighted<Platform> {
  const mix = splitList(text).map((one) => {
    const [, os, machine, share] = /^([a-z]+)\/(\w+)(?:=(\d{1,3}(?:\.\d{1,3})?)%)?$/.exec(one) ?? []
    const { data: system } = safeParse(osType, os)
    const { data: processor } = safeParse(architecture, machine)
    const weight = Number(share ?? 100)
    if (!system || !processor || !(weight > 0)) {
      throw usageError(
        `--platform takes machines such as linux/x64=80%,windows/x64=20%, not "${one}"`,
        `${osType.options.join(', ')}, each with ${architecture.options.join(', ')}`,
      )
    }
    return { of: { osType: system, architecture: processor }, weight }
  })
  if (mix.length === 0) throw usageError('--platform names no machine', 'such as linux/x64')
  return mix
}

const splitList = (text = ''): string[] => text.split(',').flatMap((one) => one.trim() || [])
