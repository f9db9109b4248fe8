import { type Change, kinds, type Plan } from '../../configuration/contract.ts'
import type { RollbackPlan } from '../../configuration/history/contract.ts'
import { escapeToOneLine } from '../../core/terminal.ts'
import type { Display } from '../display.ts'
import { formatCounts } from '../effect.ts'
import { wrapWords } from '../text-width.ts'
import { isMasked } from './variable-masking.ts'

type Place = Pick<Change, 'section' | 'org' | 'name'>
/** `variables`: what could not be read. */
type NotCompared = Place & { field: string; variables: readonly string[] }
export type ShownPlan = Omit<Plan, 'notCompared'> & { notCompared?: NotCompared[] }

const marks = { create: '+', update: '~', delete: '-', adopt: '=', release: '≠' } as const
const words = {
  create: 'create',
  update: 'change',
  delete: 'delete',
  adopt: 'take over',
  release: 'release',
} as const
const doneWords = {
  create: 'created',
  update: 'changed',
  delete: 'deleted',
  adopt: 'taken over',
  release: 'released',
} as const

const placed = ({ org, name }: { org: string | null; name: string }): string =>
  escapeToOneLine(org === null ? name : `${org} / ${name}`)

function valueText(value: unknown): string {
  if (value === undefined) return 'nothing'
  return escapeToOneLine(isMasked(value) ? value : JSON.stringify(value))
}

/** `name: "Green" → "Blue"`. */
function fieldLines(change: Change): string[] {
  const { before, after } = change
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])]
  return names.flatMap((name) => {
    const [from, to] = [valueText(before?.[name]), valueText(after?.[name])]
    // What differs is hidden on both sides.
    const line = from === to ? `${name}: ${to}` : `${name}: ${from} → ${to}`
    return [line, ...culpritLines(change, name, '  set')]
  })
}

/** Who set a field, or `null` for the object as a whole. */
const culpritLines = ({ culprits = [] }: Change, name: string | null, did: string): string[] =>
  culprits
    .filter(({ field }) => field === name)
    .map(({ by, at, entryId }) => escapeToOneLine(`${did} by ${by} at ${at}, audit entry ${entryId}`))

function endsText({ ends }: Change): string {
  const counts = escapeToOneLine(formatCounts(ends ?? {}))
  return counts === '' ? '' : `, which ends ${counts}`
}

/** What a change says beside its name, a line each. */
function notesOf(change: Change, { notCompared = [] }: Pick<Plan, 'notCompared'>): string[] {
  const isOfIt = ({ section, org, name }: Place) =>
    section === change.section && org === change.org && name === change.name
  return [
    ...(change.renamedFrom === null ? [] : [`renamed from ${escapeToOneLine(change.renamedFrom)}`]),
    ...(change.action === 'update' ? fieldLines(change) : []),
    ...notCompared.filter(isOfIt).map(({ field }) => `${field}: not compared`),
    ...culpritLines(change, null, 'deleted'),
    // A service before this field says nothing.
    ...(change.warning ? [`warning: ${escapeToOneLine(change.warning)}`] : []),
    ...(change.refused === null ? [] : [`refused: ${escapeToOneLine(change.refused)}`]),
  ]
}

/** `webhooks bakery / Tickets: secret (${env:SECRET})`. */
export const notComparedText = ({ section, field, variables, ...one }: NotCompared): string =>
  `${section} ${placed(one)}: ${field} (${escapeToOneLine(variables.join(', '))})`

/** `2 to create, 1 to change`. */
export function totalsText({ totals }: Pick<Plan, 'totals'>, isDone = false): string {
  const parts = (['create', 'update', 'delete', 'adopt', 'release'] as const)
    .filter((action) => totals[action] > 0)
    .map((action) => `${totals[action]} ${isDone ? doneWords[action] : `to ${words[action]}`}`)
  if (totals.refused > 0) parts.push(`${totals.refused} refused`)
  return parts.length === 0 ? 'no changes' : parts.join(', ')
}

/** Nothing is cut: at the end of a line stands what a value becomes, what goes with it, or why it is refused. */
function wrapped(text: string, width: number | undefined): string {
  const line = escapeToOneLine(text)
  if (width === undefined) return line
  const indent = line.length - line.trimStart().length + 2
  return wrapWords(line, width, width - indent).join(`\n${' '.repeat(indent)}`)
}

const releaseText = ({ section }: Plan['left'][number]): string =>
  kinds[section].remove === undefined ? ' (--prune releases it, and deletes nothing)' : ''

const leftByFiles = 'in no file any more, and kept without --prune'

/** Changes alone, by section. `leftWhy`: of what is owned by the set and stays. */
export function formatPlan(
  plan: Plan & Partial<Pick<RollbackPlan, 'lost'>>,
  { style, width }: Pick<Display, 'style' | 'width'>,
  leftWhy = leftByFiles,
): string {
  const tones = {
    create: style.good,
    update: style.warning,
    delete: style.bad,
    adopt: style.dim,
    release: style.dim,
  }
  const lines = [...Map.groupBy(plan.changes, ({ section }) => section)].flatMap(([section, changes]) => [
    style.heading(escapeToOneLine(section)),
    ...changes.flatMap((change) => [
      tones[change.action](wrapped(`  ${marks[change.action]} ${placed(change)}${endsText(change)}`, width)),
      ...notesOf(change, plan).map((note) => wrapped(`      ${note}`, width)),
    ]),
  ])
  if (plan.left.length > 0) {
    lines.push(style.heading(leftWhy))
    lines.push(
      ...plan.left.map((one) => wrapped(`    ${one.section}: ${placed(one)}${releaseText(one)}`, width)),
    )
  }
  const { lost = [], renamedByHand = [] } = plan
  if (renamedByHand.length > 0) lines.push(style.heading('renamed by hand as the files call it now'))
  for (const one of renamedByHand)
    lines.push(
      wrapped(
        `    ${one.section}: ${placed(one)}, was ${escapeToOneLine(one.nameInFiles)} in the files`,
        width,
      ),
    )
  if (lost.length > 0) lines.push(style.heading('not brought back'))
  for (const one of lost)
    lines.push(wrapped(`    ${one.section}: ${placed(one)} ${escapeToOneLine(one.reason)}`, width))
  return `${[...lines, `Set ${escapeToOneLine(plan.set)}: ${totalsText(plan)}`].join('\n')}\n`
}

/** What the API of GitHub takes as a comment, with some room. */
const longest = 60_000

/** For a comment on a pull request: totals first. */
export function formatMarkdown(plan: ShownPlan): string {
  const quote = (text: string) => `\`${escapeToOneLine(text).replaceAll('`', "'")}\``
  const head = `### Set ${quote(plan.set)}: ${totalsText(plan)}\n`
  const rows = [
    ...plan.changes.map(
      (change) =>
        `- **${words[change.action]}** ${escapeToOneLine(change.section)} ${quote(placed(change))}${endsText(change)}` +
        notesOf(change, plan)
          .map((note) => `\n  - ${quote(note)}`)
          .join(''),
    ),
    ...plan.left.map(
      (one) =>
        `- kept without --prune: ${escapeToOneLine(one.section)} ${quote(placed(one))}${releaseText(one)}`,
    ),
    ...(plan.renamedByHand ?? []).map(
      (one) =>
        `- renamed by hand as the files call it now: ${escapeToOneLine(one.section)} ${quote(placed(one))}, was ${quote(one.nameInFiles)} in the files`,
    ),
    ...(plan.notCompared ?? []).map((one) => `- not compared: ${quote(notComparedText(one))}`),
  ]
  let text = `${head}\n`
  for (const [at, row] of rows.entries()) {
    const more = `\nand ${rows.length - at} more\n`
    if (text.length + row.length + 1 + more.length > longest) return text + more
    text += `${row}\n`
  }
  return text
}
