import { Document, isMap, isScalar, isSeq, parseDocument, visit, type YAMLMap } from 'yaml'
import type { z } from 'zod'
import { type configuration, kinds, type Section, sections } from '../../configuration/contract.ts'
import { hasNoControls } from '../../core/terminal.ts'
import { usageError } from '../exit-codes.ts'
import { escapeVariables, holdsVariable } from './files.ts'

type Exported = z.output<typeof configuration.export.reply>
type Values = Record<string, unknown>

/** A file that describes what there is; its head says what it does not describe. */
export function exportedYaml({ document, uncovered }: Pick<Exported, 'document' | 'uncovered'>): string {
  const file = new Document(escaped(document))
  const left = uncovered.map(({ what, reason }) => ` - ${what}: ${reason}`)
  file.commentBefore = [' Not covered:', ...left].join('\n')
  return written(file)
}

function written(file: Document.Parsed | Document): string {
  visit(file, {
    Scalar: (_, scalar) => {
      // As a string in quotes it stays YAML where a terminal shows it with escapes.
      if (typeof scalar.value === 'string' && !hasNoControls(scalar.value)) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  return file.toString({ lineWidth: 0 })
}

/** What the service has is no variable of a file. */
function escaped(value: unknown): unknown {
  if (typeof value === 'string') return escapeVariables(value)
  if (Array.isArray(value)) return value.map(escaped)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, escaped(item)]))
}

/**
 * The text of a file with what has changed: what is gone is left out, what is new comes last, and fields that the file does
 * not name stay out of it. Comments and order stay, and so do texts with variables.
 */
export function mergedYaml(text: string, { document }: Pick<Exported, 'document'>): string {
  const file = parseDocument(text)
  const [error] = file.errors
  if (error) throw usageError(`Cannot read the file: ${error.message.split('\n')[0]}`)
  // Files of one organization need not say which.
  const orgs = new Set(Object.values(document).flatMap((all) => all.map(({ org }) => org)))
  const implied = document.organizations === undefined && orgs.size === 1 ? [...orgs][0] : undefined
  const placeOf = (section: Section, values: Values): string =>
    JSON.stringify([values.org ?? implied ?? null, values[kinds[section].key]])
  for (const section of sections) {
    const list = file.get(section)
    const present = document[section]
    if (present === undefined || list === undefined || list === null) continue
    if (!isSeq(list)) throw usageError(`${section} is not a list`)
    const left = new Map(present.map((values) => [placeOf(section, values), values]))
    list.items = list.items.filter((item) => {
      // An alias stands for what is elsewhere in the file.
      if (!isMap(item)) return true
      const place = placeOf(section, item.toJSON() as Values)
      const values = left.get(place)
      if (!values) return false
      left.delete(place)
      mergeInto(file, item, values, false)
      return true
    })
    for (const values of left.values()) list.items.push(file.createNode(escaped(values)) as never)
  }
  return written(file)
}

function mergeInto(file: Document.Parsed, map: YAMLMap, values: Values, isWhole: boolean): void {
  for (const [key, value] of Object.entries(values)) {
    const node = map.get(key, true)
    if (node === undefined && !isWhole) continue
    if (isMap(node) && value !== null && typeof value === 'object' && !Array.isArray(value)) {
      mergeInto(file, node, value as Values, true)
      continue
    }
    const isVariable = isScalar(node) && typeof node.value === 'string' && holdsVariable(node.value)
    const before = node === undefined ? undefined : (map.toJSON() as Values)[key]
    if (isVariable || JSON.stringify(before) === JSON.stringify(escaped(value))) continue
    // The comment of a scalar belongs to it.
    if (isScalar(node) && (value === null || typeof value !== 'object')) node.value = escaped(value)
    else map.set(key, file.createNode(escaped(value)))
  }
}
