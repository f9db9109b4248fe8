import { Problem } from '../core/errors.ts'
import { snake } from '../core/snake-case.ts'
import type { Instant } from '../core/time.ts'
import {
  isInByPrefix,
  isInUnindexed,
  jsonArrayContains,
  type TextColumn,
} from '../storage/search/text-comparisons.ts'
import {
  always,
  type Comparison,
  compareDate,
  compareDays,
  compareNumber,
  compareText,
  eb,
  isIn,
  negations,
  never,
  type Predicate,
  ref,
} from './comparisons.ts'
import { type Condition, type ConditionGroup, isGroup } from './conditions/contract.ts'
import { customPrefix, findField } from './fields/contract.ts'
import { resolveAlias } from './rules.ts'

/**
 * Predicate over the table `devices` for the devices that match, for `.where(...)`. `conditions` were checked by
 * rules.ts.
 *
 * - An unknown value (null) satisfies isNull and nothing else: not notEquals, notContains or notIn either.
 * - Of several values (network.*, software.installed, tags) any may satisfy a condition; a negative one requires
 *   that there are some and that none of them does. software.notInstalled is also true of a device without software.
 * - equals, in, hasAny and hasAll are exact; contains, startsWith and endsWith ignore letter case and take every
 *   character literally; matches is RE2 syntax, found anywhere in the text.
 * - Dates are instants; before, after and the windows compare milliseconds; months are calendar months.
 * - Nothing is in an empty list, and every known value is not in it.
 */
export function deviceMatches({ operator, conditions }: ConditionGroup, at: { now: Instant }): Predicate {
  if (operator !== 'AND' && operator !== 'OR') throw unsupported(String(operator))
  const parts = conditions.map((node) =>
    isGroup(node) ? deviceMatches(node, at) : conditionHolds(node, at.now),
  )
  return operator === 'AND' ? eb.and(parts) : eb.or(parts)
}

/**
 * The filter was saved by a newer release, whose processes may run beside this one: guessing would match other
 * devices.
 */
const unsupported = (what: string): Problem =>
  new Problem('unavailable', `The filter has ${what}, which this release does not know`, { retryAfter: 5 })

/** Whether the filter uses something that only a newer release knows. */
export const isUnsupported = (error: unknown): error is Problem =>
  error instanceof Problem && error.code === 'unavailable'

function conditionHolds({ field: key, operator, value }: Condition, now: Instant): Predicate {
  const field = typeof key === 'string' ? findField(key) : undefined
  if (!field) throw unsupported(String(key))
  if (!(field.operators as readonly string[]).includes(operator)) throw unsupported(`${key} ${operator}`)
  const asked: Comparison = { operator, value: resolveAlias(field, value) }
  const answer = key.startsWith(customPrefix) ? customField(key) : fieldCompilers[key]
  if (answer) return answer(asked)
  const column = columnFor(key)
  if (key.startsWith('daysSince')) return compareDays(column.column, asked, now)
  if (field.type === 'datetime') return compareDate(column.column, asked, now)
  if (field.type === 'number') return compareNumber(column.column, asked)
  return compareText(column, asked)
}

const deviceColumn = (name: string, key?: string): TextColumn => ({
  column: `devices.${name}`,
  ...(key !== undefined && { key: `devices.${key}` }),
})

/** A field without its own compiler maps to the column of the device's row with the same name. */
const columnFor = (key: string): TextColumn => columns[key] ?? deviceColumn(snake(key.split('.').at(-1)!))

/** Columns that have a folded copy, and columns with another name. */
const columns: Readonly<Record<string, TextColumn>> = {
  hostname: deviceColumn('hostname', 'hostname_key'),
  displayName: deviceColumn('display_name', 'display_name_key'),
  daysSinceEnrolled: deviceColumn('enrolled_at'),
  daysSinceLastSeen: deviceColumn('last_seen_at'),
}

type SideTable =
  | 'device_tags'
  | 'device_custom_fields'
  | 'device_interfaces'
  | 'device_software'
  | 'device_group_devices'
  | 'alerts'

/**
 * Whether some row of the side table satisfies the test. Always by `exists`: with an ordered limit it stops at the
 * last row of the page, which `in (select …)` cannot.
 */
function has(table: SideTable, test: Predicate = always): Predicate {
  const rows = eb.selectFrom(table).where(eb(ref(`${table}.device_id`), '=', ref('devices.id')))
  return eb.exists(rows.where(test).select(eb.lit(1).as('found')))
}

/** Whether every value of a list occurs in the side table's rows of the device. */
function hasAll(table: SideTable, column: string, list: readonly string[], test: Predicate): Predicate {
  const wanted = new Set(list).size
  if (wanted === 0) return always
  const found = eb
    .selectFrom(table)
    .where(eb(ref(`${table}.device_id`), '=', ref('devices.id')))
    .where(test)
    .select(eb.fn.count<number>(ref(column)).distinct().as('found'))
  return eb(found, '=', wanted)
}

type FieldCompiler = (asked: Comparison) => Predicate

/** A field with one value per row of a side table: any of them may satisfy a condition. */
const anyOf = (table: SideTable, text: TextColumn): FieldCompiler => {
  const known = has(table, compareText(text, { operator: 'isNotNull' }))
  return (asked) => {
    const opposite = negations[asked.operator]
    if (opposite !== undefined) {
      const one = has(table, compareText(text, { ...asked, operator: opposite }))
      return eb.and([known, eb.not(one)])
    }
    if (asked.operator === 'isNull') return eb.not(known)
    return has(table, compareText(text, asked))
  }
}

const customField = (key: string): FieldCompiler => {
  const named = isIn('device_custom_fields.key', [key.slice(customPrefix.length)])
  const value = { column: 'device_custom_fields.value' }
  return (asked) =>
    asked.operator === 'isNull'
      ? eb.not(has('device_custom_fields', named))
      : has('device_custom_fields', eb.and([named, compareText(value, asked)]))
}

const tags: FieldCompiler = ({ operator, value }) => {
  const [column, inRow] = ['device_tags.tag', 'devices.tags']
  switch (operator) {
    case 'hasAny':
      return jsonArrayContains(
        inRow,
        'some',
        value as string[],
        has('device_tags', isInUnindexed(column, value as string[])),
      )
    case 'hasAll': {
      const all = hasAll('device_tags', column, value as string[], isIn(column, value as string[]))
      return jsonArrayContains(inRow, 'all', value as string[], all)
    }
    case 'isEmpty':
      return eb.not(has('device_tags'))
    case 'isNotEmpty':
      return has('device_tags')
    default:
      return has('device_tags', compareText({ column }, { operator, value }))
  }
}

const softwareName = { column: 'device_software.name', key: 'device_software.name_key' }

const isInstalled = (names: readonly string[]): Predicate =>
  names.length === 0 ? never : isInByPrefix(softwareName, names)

const software: FieldCompiler = ({ operator, value }) => {
  switch (operator) {
    case 'equals':
      return has('device_software', isInstalled([value as string]))
    case 'in':
    case 'hasAny':
      return has('device_software', isInstalled(value as string[]))
    case 'hasAll': {
      const names = value as string[]
      return hasAll('device_software', softwareName.column, names, isInstalled(names))
    }
    default:
      return anyOf('device_software', softwareName)({ operator, value })
  }
}

const criticalAlert = has(
  'alerts',
  eb.and([isIn('alerts.severity', ['critical']), isIn('alerts.status', ['active', 'acknowledged'])]),
)

const flag =
  (yes: Predicate, no: Predicate): FieldCompiler =>
  ({ operator, value }) =>
    (operator === 'equals') === value ? yes : no

const numberIs = (column: string, operator: string, value: number) =>
  compareNumber(column, { operator, value })
const columnFlag = (column: string): FieldCompiler => {
  const known = flag(numberIs(column, 'equals', 1), numberIs(column, 'equals', 0))
  return (asked) => (/null$/i.test(asked.operator) ? compareNumber(column, asked) : known(asked))
}

/** Fields that need more than a comparison with one column. */
const fieldCompilers: Readonly<Record<string, FieldCompiler>> = {
  tags,
  groupId: (asked) =>
    has('device_group_devices', compareText({ column: 'device_group_devices.group_id' }, asked)),
  'network.ipAddress': anyOf('device_interfaces', { column: 'device_interfaces.ip_address' }),
  'network.publicIp': anyOf('device_interfaces', { column: 'device_interfaces.public_ip' }),
  'network.macAddress': anyOf('device_interfaces', { column: 'device_interfaces.mac_address' }),
  'software.installed': software,
  'software.notInstalled': (asked) => eb.not(software(asked)),
  isHeadless: columnFlag('devices.is_headless'),
  'system.rebootRequired': columnFlag('devices.pending_reboot'),
  'patches.pending': flag(
    numberIs('devices.pending_patches', 'greaterThan', 0),
    numberIs('devices.pending_patches', 'equals', 0),
  ),
  'alerts.critical': flag(criticalAlert, eb.not(criticalAlert)),
}
