import { z } from 'zod'
import { isJsonObject } from '../../core/json.ts'
import { safeParse, text } from '../../core/schema.ts'
import { operators } from '../fields/contract.ts'

/** Levels of groups, the outermost included; and the number of conditions and groups in total. */
export const maxDepth = 10
const maxNodes = 200
/** Values in one list, and in total: both databases limit the parameters of a statement. */
const maxListLength = 500
const maxValues = 5000
/** Longest window, in any unit. */
const maxWindow = 1_000_000

export const timeUnits = ['minutes', 'hours', 'days', 'weeks', 'months'] as const
export type TimeUnit = (typeof timeUnits)[number]

const Text = text(1000)
const limit = { error: 'must be text or a number' }
const Range = z.strictObject({
  from: z.union([Text, z.number()], limit),
  to: z.union([Text, z.number()], limit),
})
const Window = z.strictObject({
  amount: z
    .number({ error: 'must be a number' })
    .positive('must be more than 0')
    .max(maxWindow, `must be at most ${maxWindow}`),
  unit: z.enum(timeUnits, { error: `must be one of ${timeUnits.join(', ')}` }),
})

export const ConditionValue = z
  .union([Text, z.number(), z.boolean(), z.array(Text).max(maxListLength), Range, Window])
  .describe(
    'Text, a number or a boolean; a list of text (in, notIn, hasAny, hasAll); from and to (between); amount and unit (withinLast, notWithinLast); omitted with isNull, isNotNull, isEmpty and isNotEmpty',
  )
export type ConditionValue = z.output<typeof ConditionValue>

/** The name of a field or an operator. */
const Key = text(200)

export const Condition = z
  .strictObject({
    field: Key.describe('A key of GET /filters/fields'),
    operator: Key.describe(`One of ${operators.join(', ')}, as the field allows`),
    value: ConditionValue.optional(),
  })
  .meta({ id: 'Condition' })
export type Condition = { field: string; operator: string; value?: ConditionValue | undefined }

export type ConditionGroup = { operator: 'AND' | 'OR'; conditions: (Condition | ConditionGroup)[] }

const Group: z.ZodType<ConditionGroup> = z
  .strictObject({
    operator: z.enum(['AND', 'OR']),
    get conditions() {
      return z.array(z.union([Condition, Group])).min(1)
    },
  })
  .meta({ id: 'ConditionGroup' })

/** The same for a reply: stored conditions were checked by `ConditionGroup`. */
export const StoredGroup = Group

/**
 * A condition group of any valid shape. The meaning of fields, operators and values is checked in rules.ts. The shape
 * is checked without recursion first: a tree that is too deep would overflow the stack of recursive code, and a union
 * could only report that nothing fits.
 */
export const ConditionGroup = z.preprocess((value, ctx) => {
  for (const { path, message } of shapeFaults(value)) ctx.addIssue({ code: 'custom', path, message })
  return value
}, Group)

export const isGroup = (node: Condition | ConditionGroup): node is ConditionGroup => 'conditions' in node

type Path = (string | number)[]
type ShapeFault = { path: Path; message: string }

/** Every fault of the shape, in document order. */
function shapeFaults(root: unknown): ShapeFault[] {
  const faults: ShapeFault[] = []
  const waiting: { node: unknown; path: Path; depth: number }[] = [{ node: root, path: [], depth: 1 }]
  let values = 0
  for (let nodes = 1; waiting.length > 0; ) {
    const { node, path, depth } = waiting.pop()!
    const within = ({ path: rest, message }: ShapeFault) => ({ path: [...path, ...rest], message })
    if (!isJsonObject(node) || (path.length > 0 && !('conditions' in node))) {
      faults.push(...conditionFaults(node, path.length === 0).map(within))
      values += isJsonObject(node) && Array.isArray(node.value) ? node.value.length : 0
      if (values > maxValues) {
        return [{ path: [], message: `must not list more than ${maxValues} values in total` }]
      }
      continue
    }
    faults.push(...groupFaults(node, depth).map(within))
    if (!Array.isArray(node.conditions) || depth > maxDepth) continue
    nodes += node.conditions.length
    if (nodes > maxNodes) {
      return [{ path: [], message: `must not contain more than ${maxNodes} conditions and groups` }]
    }
    for (const [i, inner] of [...node.conditions.entries()].reverse()) {
      waiting.push({ node: inner, path: [...path, 'conditions', i], depth: depth + 1 })
    }
  }
  return faults
}

function groupFaults(node: Record<string, unknown>, depth: number): ShapeFault[] {
  if (depth > maxDepth) return [{ path: [], message: `must not be nested more than ${maxDepth} levels deep` }]
  const { operator, conditions } = node
  return [
    ...unknownKeys(node, ['operator', 'conditions']),
    ...(operator === 'AND' || operator === 'OR'
      ? []
      : [{ path: ['operator'], message: 'must be AND or OR' }]),
    ...(Array.isArray(conditions) ? [] : [{ path: ['conditions'], message: 'must be a list of conditions' }]),
    ...(Array.isArray(conditions) && conditions.length === 0
      ? [{ path: ['conditions'], message: 'must have at least one condition' }]
      : []),
  ]
}

function conditionFaults(node: unknown, isRoot: boolean): ShapeFault[] {
  if (node === undefined) return [{ path: [], message: 'is required' }]
  if (!isJsonObject(node)) {
    const wanted = isRoot ? 'a group: operator and conditions' : 'a condition or a group of conditions'
    return [{ path: [], message: `must be ${wanted}` }]
  }
  const faults = unknownKeys(node, ['field', 'operator', 'value'])
  for (const key of ['field', 'operator']) {
    const found = node[key] === undefined ? [{ path: [], message: 'is required' }] : issuesOf(Key, node[key])
    faults.push(...found.map(({ message }) => ({ path: [key], message })))
  }
  return [...faults, ...valueFaults(node.value)]
}

function valueFaults(value: unknown): ShapeFault[] {
  const at = (path: Path, faults: ShapeFault[]) =>
    faults.map((one) => ({ ...one, path: [...path, ...one.path] }))
  if (value === undefined || typeof value === 'boolean') return []
  if (typeof value === 'number') return at(['value'], issuesOf(z.number(), value, 'must be a number'))
  if (Array.isArray(value)) {
    if (value.length > maxListLength) {
      return [{ path: ['value'], message: `must not list more than ${maxListLength} values` }]
    }
    return value.flatMap((one, i) => at(['value', i], issuesOf(Text, one)))
  }
  if (!isJsonObject(value))
    return at(['value'], issuesOf(Text, value, 'must be text, a number, a boolean, a list or an object'))
  if ('from' in value || 'to' in value) return at(['value'], issuesOf(Range, value))
  if ('amount' in value || 'unit' in value) return at(['value'], issuesOf(Window, value))
  return [{ path: ['value'], message: 'must be from and to, or amount and unit' }]
}

/** The faults that a schema finds; `wrongKind` is the message where the value has the wrong type. */
function issuesOf(schema: z.ZodType, value: unknown, wrongKind = 'must be text'): ShapeFault[] {
  const issues = safeParse(schema, value).error?.issues ?? []
  return issues.flatMap((issue): ShapeFault[] => {
    const path = issue.path as Path
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({ path: [...path, key], message: 'is not a known field' }))
    }
    const isBare = path.length === 0 && issue.code === 'invalid_type'
    return [{ path, message: isBare ? wrongKind : issue.message }]
  })
}

const unknownKeys = (node: Record<string, unknown>, known: string[]): ShapeFault[] =>
  Object.keys(node)
    .filter((key) => !known.includes(key))
    .map((key) => ({ path: [key], message: 'is not a known field' }))
