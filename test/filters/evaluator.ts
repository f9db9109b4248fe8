import { RE2JS } from 're2js'
import type { Condition, ConditionGroup } from '../../src/filters/contract.ts'
import { type Machine, now } from './fleet.ts'

/**
 * A second, simple implementation of filters: one device in memory, with all values compared.
 * It uses only the types of src/filters.
 */
export function matches(group: ConditionGroup, device: Machine): boolean {
  const each = group.conditions.map((node) =>
    'conditions' in node ? matches(node, device) : holds(node, device),
  )
  return group.operator === 'AND' ? each.every(Boolean) : each.some(Boolean)
}

function holds({ field, operator, value }: Condition, device: Machine): boolean {
  const { values, software, custom, interfaces } = device
  switch (field) {
    case 'tags':
      return onTags(device.tags, operator, value)
    case 'groupId':
      return device.groups.some((id) => one(id, operator, value))
    case 'software.installed':
      return onMany(software, operator, value)
    case 'software.notInstalled':
      return !onMany(software, operator, value)
    case 'patches.pending': {
      const { pendingPatches: count } = device
      return count !== null && one(count > 0, operator, value)
    }
    case 'alerts.critical': {
      const open = device.alerts.filter((it) => it.severity === 'critical' && it.status !== 'resolved')
      return one(open.length > 0, operator, value)
    }
    case 'daysSinceEnrolled':
      return onDays(values.enrolledAt as string, operator, value)
    case 'daysSinceLastSeen':
      return onDays(values.lastSeenAt as string | null, operator, value)
    case 'enrolledAt':
    case 'lastSeenAt':
    case 'quarantinedAt':
      return onDate(values[field] as string | null, operator, value)
    default:
  }
  if (field.startsWith('custom.')) return one(custom[field.slice(7)] ?? null, operator, value)
  if (field.startsWith('network.')) {
    const key = field.slice(8) as keyof (typeof interfaces)[number]
    return onMany(
      interfaces.map((it) => it[key]).filter((it) => it !== null),
      operator,
      value,
    )
  }
  const other = { amd64: 'x64', x86_64: 'x64', i386: 'x86', '386': 'x86', aarch64: 'arm64' } as Record<
    string,
    string
  >
  const spelled = (text: unknown) => (field === 'architecture' ? (other[text as string] ?? text) : text)
  if (values[field] === undefined)
    throw new Error(`No device of test/filters/fleet.ts has a value of ${field}`)
  return one(values[field], operator, Array.isArray(value) ? value.map(spelled) : spelled(value))
}

const folded = (text: string) => text.normalize('NFKC').toLowerCase().replaceAll('ς', 'σ')

function one(found: string | number | boolean | null, operator: string, value: unknown): boolean {
  if (operator === 'isNull') return found === null
  if (found === null) return false
  const text = () => folded(String(found))
  const wanted = () => folded(value as string)
  const range = value as { from: number; to: number }
  const all: Record<string, () => boolean> = {
    isNotNull: () => true,
    equals: () => found === value || (found === 0 && value === 0),
    notEquals: () => found !== value,
    in: () => (value as unknown[]).includes(found),
    notIn: () => !(value as unknown[]).includes(found),
    contains: () => text().includes(wanted()),
    notContains: () => !text().includes(wanted()),
    startsWith: () => text().startsWith(wanted()),
    endsWith: () => text().endsWith(wanted()),
    matches: () =>
      RE2JS.compile(value as string)
        .matcher(String(found))
        .find(),
    greaterThan: () => (found as number) > (value as number),
    greaterThanOrEquals: () => (found as number) >= (value as number),
    lessThan: () => (found as number) < (value as number),
    lessThanOrEquals: () => (found as number) <= (value as number),
    between: () => (found as number) >= range.from && (found as number) <= range.to,
  }
  return all[operator]!()
}

function onMany(found: string[], operator: string, value: unknown): boolean {
  if (operator === 'isNull') return found.length === 0
  if (operator === 'hasAny') return (value as string[]).some((it) => found.includes(it))
  if (operator === 'hasAll') return (value as string[]).every((it) => found.includes(it))
  const isNegative = ['notEquals', 'notContains', 'notIn'].includes(operator)
  if (isNegative) return found.length > 0 && found.every((it) => one(it, operator, value))
  return found.some((it) => one(it, operator, value))
}

function onTags(tags: string[], operator: string, value: unknown): boolean {
  if (operator === 'isEmpty') return tags.length === 0
  return operator === 'isNotEmpty' ? tags.length > 0 : onMany(tags, operator, value)
}

const dayLength = 24 * 60 * 60 * 1000

function onDays(date: string | null, operator: string, value: unknown): boolean {
  if (date === null) return operator === 'isNull'
  const age = Date.parse(now) - Date.parse(date)
  const scaled = (days: unknown): unknown => (typeof days === 'number' ? days * dayLength : days)
  const range = value as { from: number; to: number }
  const asked = operator === 'between' ? { from: scaled(range.from), to: scaled(range.to) } : scaled(value)
  return one(age, operator, asked)
}

function onDate(date: string | null, operator: string, value: unknown): boolean {
  if (date === null) return operator === 'isNull'
  const at = Date.parse(date)
  const range = value as { from: string; to: string }
  const { amount, unit } = value === undefined ? ({} as never) : (value as { amount: number; unit: string })
  switch (operator) {
    case 'before':
      return at < Date.parse(value as string)
    case 'after':
      return at > Date.parse(value as string)
    case 'between':
      return at >= Date.parse(range.from) && at <= Date.parse(range.to)
    case 'withinLast':
      return at >= back(amount, unit)
    case 'notWithinLast':
      return at < back(amount, unit)
    default:
      return one(at, operator, value === undefined ? undefined : Date.parse(value as string))
  }
}

function back(amount: number, unit: string): number {
  const lengths: Record<string, number> = {
    minutes: 60_000,
    hours: 3_600_000,
    days: dayLength,
    weeks: 7 * dayLength,
  }
  if (unit !== 'months') return Date.parse(now) - amount * lengths[unit]!
  const [year, month, day] = now.split(/[-T]/).map(Number) as [number, number, number]
  const months = year * 12 + (month - 1) - amount
  const y = Math.floor(months / 12)
  const m = months - y * 12
  const isLeap = (y % 4 === 0 && y % 100 !== 0) || y % 400 === 0
  const longest = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][m]!
  const midnight = new Date(0).setUTCFullYear(y, m, Math.min(day, longest))
  return midnight + (Date.parse(now) % dayLength)
}
