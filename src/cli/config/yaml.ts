import { isDeepStrictEqual } from 'node:util'
import {
  Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  type Node,
  visit,
  type YAMLMap,
  type YAMLSeq,
} from 'yaml'
import type { z } from 'zod'
import { type configuration, keyOf, kinds, type Section, sections } from '../../configuration/contract.ts'
import { isJsonObject } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { hasNoControls } from '../../core/terminal.ts'
import { usageError } from '../exit-codes.ts'
import { faultsError } from './files.ts'
import type { FileFault } from './source.ts'
import { isMergeKey, Source } from './source.ts'
import { hasVariable, substituteVariables, VariableSource } from './variables.ts'

type Exported = z.output<typeof configuration.export.reply>
type Values = Record<string, unknown>

/** The name of what an export leaves out where that is all of a section. */
export const wholeSection = '*'

/** A file that describes what there is; its head says what it does not describe. */
export function exportedYaml({ document, uncovered }: Pick<Exported, 'document' | 'uncovered'>): string {
  const file = new Document(document)
  const left = uncovered.map(({ what, reason }) => ` - ${what}: ${reason}`)
  file.commentBefore = [' Not covered:', ...left].join('\n')
  return toYaml(file)
}

/**
 * With escapes a text stays YAML where a terminal shows what it cannot show as such. Of a block of spaces and line ends
 * alone the spaces would be indentation.
 */
const isQuoted = (text: string): boolean => text === '<<' || !hasNoControls(text) || /^[ \n]*$/.test(text)

function toYaml(file: Document): string {
  // The library would write a text "<<" as a merge key.
  file.schema.tags = file.schema.tags.filter(({ tag }) => tag !== 'tag:yaml.org,2002:merge')
  visit(file, {
    Scalar: (_, scalar) => {
      if (isMergeKey(scalar)) scalar.value = '<<'
      else if (typeof scalar.value === 'string' && isQuoted(scalar.value)) scalar.type = 'QUOTE_DOUBLE'
    },
  })
  // In quotes over several lines a line of one space would be read as a backslash.
  return file.toString({ lineWidth: 0, doubleQuotedMinMultiLineLength: Number.POSITIVE_INFINITY })
}

/** A file, and what there is, in which variables are escaped; `skipped`: what there is besides. */
type Merge = Pick<Exported, 'document' | 'skipped'> & {
  file: string
  text: string
  allowed: readonly string[]
}

/** `kept`: what an export leaves out and the file has. */
type Merged = { text: string; kept: ReadonlySet<Exported['skipped'][number]> }

/**
 * The text of a file with what has changed: what is gone is left out, what is new comes last, and fields that the file does
 * not name stay out of it. Comments and order stay, and so does what holds a variable, whose value must not be written down,
 * and what the export leaves out though it is there: without it in the file, --prune would delete it.
 * @throws CliError also where it is not known which object is meant
 */
export function mergedYaml({ file, text, document: present, skipped, allowed }: Merge): Merged {
  const source = new Source(file, text)
  const broken = source.faults()
  if (broken.length > 0) throw faultsError(broken)
  const { document } = source
  const faults: FileFault[] = []
  const variables = new VariableSource(allowed)
  // Files of one organization need not say which.
  const objects = skipped.filter(({ name }) => name !== wholeSection)
  const orgs = new Set([
    ...Object.values(present).flatMap((all) => all.map(({ org }) => org)),
    ...objects.map(({ org }) => org ?? undefined),
  ])
  const isOfOneOrg = present.organizations === undefined && orgs.size <= 1
  const implied = isOfOneOrg ? [...orgs][0] : undefined
  const placeOf = (section: Section, { org, [kinds[section].key]: key }: Values): string =>
    JSON.stringify([org ?? implied ?? null, keyOf(section, key)])
  const kept = new Set<Exported['skipped'][number]>()
  // Of organizations that the caller does not see the export says nothing: they are not gone.
  const isPartial = skipped.some(({ section, name }) => section === 'organizations' && name === wholeSection)
  const visibleOrgs = new Set<unknown>([
    ...(present.organizations?.map(({ slug }) => slug) ?? []),
    ...objects.filter(({ section }) => section === 'organizations').map(({ name }) => name),
  ])
  const isUnseen = (section: Section, { org, slug }: Values): boolean =>
    isPartial &&
    present.organizations !== undefined &&
    (section === 'organizations' ? !visibleOrgs.has(slug) : org !== undefined && !visibleOrgs.has(org))
  for (const section of sectionsOf(document)) {
    const list = document.get(section)
    const there = present[section]
    for (const one of skipped) if (one.section === section && one.name === wholeSection) kept.add(one)
    if (there === undefined || list === undefined || list === null) continue
    if (!isSeq(list)) throw usageError(`${section} is not a list`)
    const left = new Map(there.map((values) => [placeOf(section, values), values]))
    const unsaid = Map.groupBy(
      objects.filter((one) => one.section === section),
      ({ org, name }) => placeOf(section, { org, [kinds[section].key]: name }),
    )
    const stays = list.items.map((item, at) => {
      const map = isAlias(item) ? source.target(item) : item
      if (!isMap(map)) return true
      const fault = (field: string | number, message: string) =>
        faults.push({ file, ...source.placeOf([section, at, field]), message })
      const identity = identityOf(section, map, source)
      const found = faults.length
      const filled = substituteVariables(identity, [section, at], {
        file,
        source: variables,
        fault: ([, , field = ''], message) => fault(field, message),
      })
      if (faults.length > found) return true
      const identified = filled as Values
      const { org } = identified
      // What is of others is not in an export of one organization, and not gone.
      if (isOfOneOrg && org !== undefined && org !== implied)
        throw usageError(
          `${file} has ${section} of the organization ${org}, of which this export says nothing`,
          'export the whole partner: leave out --org',
        )
      if (isUnseen(section, identified)) return true
      const place = placeOf(section, identified)
      const leftOut = unsaid.get(place)
      if (leftOut) {
        for (const one of leftOut) kept.add(one)
        return true
      }
      const values = left.get(place)
      if (values) {
        left.delete(place)
        // An alias stands for what is elsewhere in the file.
        if (map === item) mergeInto(source, map, values, section)
      } else if (hasVariable(identity)) {
        const field = Object.keys(identity).find((name) => hasVariable(identity[name])) ?? ''
        fault(
          field,
          'with the variable set as it is, the service has no such object: set it, or delete this one',
        )
      }
      return values !== undefined
    })
    const made = [...left.values()].map((values) => document.createNode(values))
    setItems(source, list, [...list.items.filter((_, at) => stays[at]), ...made])
  }
  if (faults.length > 0) throw faultsError(faults)
  checkAnchors(source)
  return { text: toYaml(document), kept }
}

/** In the order of the file: an alias is compared after what it stands for has changed. */
function sectionsOf({ contents }: Document): Section[] {
  if (!isMap(contents)) return []
  const names = contents.items.map(({ key }) => (isScalar(key) ? key.value : key))
  return names.filter((name): name is Section => (sections as readonly unknown[]).includes(name))
}

/** What an object is known by, with what it has from `<<`. */
function identityOf(section: Section, map: YAMLMap, source: Source): Values {
  const { org, [kinds[section].key]: key } = source.json(map) as Values
  return { [kinds[section].key]: key, ...(org !== undefined && { org }) }
}

/** `section`: of the object that the map is; a map within it gets all of its values, and loses others. */
function mergeInto(source: Source, map: YAMLMap, values: Values, section?: Section): void {
  for (const [key, value] of Object.entries(values)) {
    const pair = source.pairOf(map, key)
    const node = pair?.value
    // With what it has from `<<`, which may have changed above.
    const before = (source.json(map) as Values)[key]
    if (before === undefined && section !== undefined) continue
    if (section !== undefined && isSame(section, key, { before, value })) continue
    if (isMap(node) && isJsonObject(value)) {
      mergeInto(source, node, value)
      continue
    }
    if (hasVariable(before) || isDeepStrictEqual(before, value)) continue
    // The comment of a scalar belongs to it.
    if (isScalar(node) && (value === null || typeof value !== 'object')) {
      node.value = value
      // The new value may not fit a tag.
      delete node.tag
    } else if (isSeq(node) && Array.isArray(value)) {
      mergeList(
        source,
        node,
        value,
        (before) => section !== undefined && isSame(section, key, { before, value }),
      )
    } else if (pair) pair.value = source.document.createNode(value)
    else map.add(source.document.createPair(key, value))
  }
  if (section !== undefined) {
    const decided = kinds[section].decided?.(values) ?? {}
    map.items = map.items.filter(({ key }) => isMergeKey(key) || !Object.hasOwn(decided, source.keyOf(key)))
    return
  }
  // Null stands for what is not there.
  const isKept = (value: unknown) => value === null || hasVariable(value)
  map.items = map.items.filter(
    ({ key, value }) =>
      isMergeKey(key) || Object.hasOwn(values, source.keyOf(key)) || isKept(source.json(value)),
  )
}

/** What is still there stays as it is written; `isSame`: whether the list is the same in an order. */
function mergeList(
  source: Source,
  list: YAMLSeq,
  values: readonly unknown[],
  isSame: (values: unknown[]) => boolean,
): void {
  const wanted = values.map((value) => ({ value, node: undefined as unknown }))
  const gone = list.items.filter((item) => {
    const json = source.json(item)
    const same = wanted.find(({ value, node }) => node === undefined && isDeepStrictEqual(json, value))
    if (same) same.node = item
    return !same
  })
  const added = wanted.filter(({ node }) => node === undefined)
  const isChanged = gone.length === added.length
  for (const [at, one] of added.entries()) {
    const item = gone[at]
    if (isChanged && isMap(item) && isJsonObject(one.value)) {
      mergeInto(source, item, one.value)
      // A list is replaced as a whole: null, and what comes from `<<`, are values of it.
      if (isDeepStrictEqual(source.json(item), one.value)) one.node = item
    }
    one.node ??= source.document.createNode(one.value)
  }
  const places = new Map(list.items.map((item, at) => [item, at]))
  const placeOf = ({ node }: { node: unknown }) => places.get(node) ?? list.items.length
  const ordered = wanted.toSorted((one, other) => placeOf(one) - placeOf(other))
  const kept = isSame(ordered.map(({ value }) => value)) ? ordered : wanted
  setItems(
    source,
    list,
    kept.map(({ node }) => node),
  )
}

/**
 * Gives a list other items. The library has all comments above the first item of a list as comments of the list: those right
 * above it go where it goes. In a list in brackets each item has its own.
 */
function setItems(source: Source, list: YAMLSeq, items: unknown[]): void {
  const [first] = list.items
  const { commentBefore } = list
  list.items = items
  if (!commentBefore || first === undefined || list.flow || items[0] === first) return
  const count = source.commentLinesAbove(list)
  if (count === 0) return
  const lines = commentBefore.split('\n')
  const ofFirst = lines.splice(-count).join('\n')
  list.commentBefore = lines.join('\n').trimEnd() || null
  if (isNode(first) && items.includes(first))
    first.commentBefore = [ofFirst, first.commentBefore].filter(Boolean).join('\n')
}

/** Whether the service reads the value in the file as the one that it has: a list may be in another order, an address in capitals. */
function isSame(section: Section, field: string, { before, value }: { before: unknown; value: unknown }) {
  const schema = kinds[section].fields.find(({ name }) => name === field)?.schema
  const read = schema && safeParse(schema, before)
  return read?.success === true && isDeepStrictEqual(read.data, value)
}

/** What is left out may be what others refer to. */
function checkAnchors(source: Source): void {
  const anchors = new Map<string, Node>()
  visit(source.document, {
    Node(_, node) {
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.set(node.anchor, node)
      } else if (anchors.get(node.source) !== source.target(node))
        throw usageError(
          `Cannot merge into ${source.file}: *${node.source} refers to what has changed or is gone`,
          `write out what *${node.source} stands for`,
        )
    },
  })
}
