import { z } from 'zod'
import { text } from '../../core/schema.ts'
import { operators } from '../fields/contract.ts'

/** Levels of groups, the outermost included, and conditions and groups in all (decisions.md, "Filters and search"). */
export const deepest = 10
export const mostNodes = 200
/** Values in one list: both databases limit what a statement can carry. */
export const longestList = 100
const Text = text(1000)

export const timeUnits = ['minutes', 'hours', 'days', 'weeks', 'months'] as const
export type TimeUnit = (typeof timeUnits)[number]

const scalar = z.union([z.string(), z.number()])

export const ConditionValue = z
  .union([
    z.string(),
    z.number(),
    z.boolean(),
    z.array(z.string()),
    z.strictObject({ from: scalar, to: scalar }),
    z.strictObject({ amount: z.number(), unit: z.enum(timeUnits) }),
  ])
  .describe(
    'Text, a number or a boolean; a list of text (in, notIn, hasAny, hasAll); from and to (between); amount and unit (withinLast, notWithinLast); omitted for isNull, isNotNull, isEmpty and isNotEmpty',
  )
export type ConditionValue = z.output<typeof ConditionValue>

export const Condition = z
  .strictObject({
    field: z.string().describe('A key of GET /filters/fields'),
    operator: z.string().describe(`One of ${operators.join(', ')}, as the field allows`),
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

/** The same for a reply: what is stored went in through `ConditionGroup`. */
export const StoredGroup = Group

/**
 * A condition group of any shape that the wire allows. What its fields, operators and values mean is judged in
 * rules.ts. The tree is walked without recursion first: one that is too deep would end the stack of whatever
 * walks it by calling itself, and a union could only say that nothing fits.
 */
export const ConditionGroup = z.preprocess((value, ctx) => {
  for (const { path, message } of shapeFaults(value)) ctx.addIssue({ code: 'custom', path, message })
  return value
}, Group)

export const isGroup = (node: Condition | ConditionGroup): node is ConditionGroup => 'conditions' in node

type Way = (string | number)[]
type ShapeFault = { path: Way; message: string }

/** Every fault of the shape, in the order of the text. */
function shapeFaults(root: unknown): ShapeFault[] {
  const faults: ShapeFault[] = []
  const waiting: { node: unknown; path: Way; depth: number }[] = [{ node: root, path: [], depth: 1 }]
  for (let nodes = 1; waiting.length > 0; ) {
    const { node, path, depth } = waiting.pop()!
    const within = ({ path: rest, message }: ShapeFault) => ({ path: [...path, ...rest], message })
    if (!isObject(node) || (path.length > 0 && !('conditions' in node))) {
      faults.push(...conditionFaults(node, path.length === 0).map(within))
      continue
    }
    faults.push(...groupFaults(node, depth).map(within))
    if (!Array.isArray(node.conditions) || depth > deepest) continue
    nodes += node.conditions.length
    if (nodes > mostNodes) {
      return [{ path: [], message: `must not hold more than ${mostNodes} conditions and groups` }]
    }
    for (const [i, inner] of [...node.conditions.entries()].reverse()) {
      waiting.push({ node: inner, path: [...path, 'conditions', i], depth: depth + 1 })
    }
  }
  return faults
}

function groupFaults(node: Record<string, unknown>, depth: number): ShapeFault[] {
  if (depth > deepest) return [{ path: [], message: `must not be nested more than ${deepest} levels deep` }]
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
  if (!isObject(node)) {
    const wanted = isRoot ? 'a group: operator and conditions' : 'a condition or a group of conditions'
    return [{ path: [], message: `must be ${wanted}` }]
  }
  const faults = unknownKeys(node, ['field', 'operator', 'value'])
  for (const key of ['field', 'operator']) {
    if (node[key] === undefined) faults.push({ path: [key], message: 'is required' })
    else if (typeof node[key] !== 'string') faults.push({ path: [key], message: 'must be text' })
  }
  return [...faults, ...valueFaults(node.value)]
}

function valueFaults(value: unknown): ShapeFault[] {
  const { success, data } = ConditionValue.optional().safeParse(value)
  if (!success) {
    const message =
      'must be text, a number, a boolean, a list of text, from and to, or amount and unit (minutes, hours, days, weeks or months)'
    return [{ path: ['value'], message }]
  }
  if (Array.isArray(data) && data.length > longestList) {
    return [{ path: ['value'], message: `must not list more than ${longestList} values` }]
  }
  const texts: [Way, unknown][] = Array.isArray(data)
    ? data.map((text, i) => [['value', i], text])
    : isObject(data)
      ? Object.entries(data).map(([key, text]) => [['value', key], text])
      : [[['value'], data]]
  return texts.flatMap(([path, one]) => {
    const fault = typeof one === 'string' ? Text.safeParse(one).error?.issues[0] : undefined
    return fault ? [{ path, message: fault.message }] : []
  })
}

const unknownKeys = (node: Record<string, unknown>, known: string[]): ShapeFault[] =>
  Object.keys(node)
    .filter((key) => !known.includes(key))
    .map((key) => ({ path: [key], message: 'is not a known field' }))

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === 'object' && !Array.isArray(value)
