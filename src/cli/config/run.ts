import type { z } from 'zod'
import { ConfigurationFile, configuration, type Plan } from '../../configuration/contract.ts'
import { configurationApplies, type RollbackPlan } from '../../configuration/history/contract.ts'
import { ApiError, NetworkError } from '../../core/client.ts'
import { safeParse } from '../../core/schema.ts'
import { confirmOrThrow, printTarget, readTextFile } from '../ask.ts'
import type { CommandContext } from '../base.ts'
import { namedTenant } from '../current-org.ts'
import { displayOf } from '../display.ts'
import { toReport } from '../error-report.ts'
import { CliError, exitCodes, SilentExit, usageError } from '../exit-codes.ts'
import { checkReplaceable, writePrivateFile } from '../files.ts'
import { printNote, printRecord, writeJson, writeStdout } from '../print.ts'
import { withSpinner } from '../progress.ts'
import { resolveId } from '../resolve.ts'
import { exitOnLostOutput } from '../run-and-exit.ts'
import { checkPlanAllowed } from './check-plan-allowed.ts'
import {
  type Configuration,
  faultsError,
  nameAt,
  type OmittedField,
  readConfiguration,
  readMergedFile,
} from './files.ts'
import { formatMarkdown, formatPlan, notComparedText, type ShownPlan, totalsText } from './format.ts'
import type { FileFault } from './source.ts'
import { type SubstitutedText, VariableMasker } from './variable-masking.ts'
import { escapeVariables } from './variables.ts'

export type PlanFlags = {
  set: string
  partner?: string | undefined
  env?: string[] | undefined
  adopt?: boolean | undefined
  prune?: boolean | undefined
  'prune-limit'?: number | undefined
  'without-secrets'?: boolean | undefined
}

type Request = {
  query: { orgId?: string; partnerId?: string }
  body: z.input<typeof configuration.plan.body>
}

/** A plan as it is saved: what was asked for and what the answer was, without values of variables. */
type SavedPlan = { plan: ShownPlan; request: Request; substituted: SubstitutedText[] }

/** `culprits`: with who last set what differs. */
async function ask(
  session: CommandContext,
  paths: readonly string[],
  flags: PlanFlags,
  culprits = false,
): Promise<SavedPlan> {
  const files = await readConfiguration(paths, flags)
  const { substituted, omitted } = files
  const hidden = new VariableMasker(files.document, substituted)
  const { set, adopt = false, prune = false } = flags
  const pruneLimit = flags['prune-limit']
  const request: Request = {
    query: await namedTenant(session, flags.partner),
    body: { set, document: files.document, adopt, prune, ...(pruneLimit !== undefined && { pruneLimit }) },
  }
  const withoutSecrets = omitted.map(({ variables: _, ...field }) => field)
  const asked = {
    ...request,
    body: {
      ...request.body,
      ...(culprits && { culprits }),
      ...(withoutSecrets.length > 0 && { withoutSecrets }),
    },
  }
  const sent = session.client.request(configuration.plan, asked)
  const plan = await withSpinner('Planning', sent).catch((failure) => {
    throw withPlaces(hidden.failure(failure), files, hidden)
  })
  if (files.faults.length > 0) throw faultsError(files.faults)
  return { plan: withVariables(hidden.plan(plan as Plan), omitted), request, substituted }
}

/** With the variables that could not be read. */
function withVariables({ notCompared, ...plan }: Plan, omitted: readonly OmittedField[]): ShownPlan {
  if (!notCompared) return plan
  return {
    ...plan,
    notCompared: notCompared.map((one, at) => ({ ...one, variables: omitted[at]!.variables })),
  }
}

/** The faults of the service at their places in the files, together with those that need no service. */
function withPlaces(failure: unknown, files: Configuration, hidden: VariableMasker): unknown {
  // A request that is too large, perhaps once its variables are filled in, may also break the connection: only the faults
  // found without the service are known.
  const isUnsent = failure instanceof NetworkError || (failure instanceof ApiError && failure.status === 413)
  if (isUnsent && files.faults.length > 0) return faultsError(files.faults)
  const nowhere = { file: '', line: 0, column: 0 }
  // What may not be read at all: nothing else is known without it, but for the faults of form.
  const isForbidden = failure instanceof ApiError && failure.code === 'forbidden'
  if (isForbidden && files.faults.length > 0)
    return faultsError([...files.faults, { ...nowhere, message: failure.message }])
  if (!(failure instanceof ApiError) || failure.code !== 'invalid_request' || !Array.isArray(failure.details))
    return failure
  const faults = (failure.details as { path: string; message: string }[]).map(
    ({ path, message }): FileFault => {
      const place = files.placeOf(path)
      const field = path.split('.').slice(4).join('.')
      const about = `${hidden.text(nameAt(files, path))}${field === '' ? '' : `${field} `}`
      if (place) return { ...place, message: `${about}${message}` }
      const flag = path === 'body.pruneLimit' ? '' : `${path.replace(/^body\.(document\.)?/, '')}: `
      return { ...nowhere, message: `${flag}${message}` }
    },
  )
  const { moreDetails } = failure
  if (moreDetails > 0) faults.push({ ...nowhere, file: '', message: `and ${moreDetails} more` })
  const isOfForm = files.faults.length > 0 || !safeParse(ConfigurationFile, files.document).success
  return faultsError([...files.faults, ...faults], isOfForm)
}

async function printPlan(session: CommandContext, plan: ShownPlan): Promise<void> {
  const text = () => formatPlan(plan, displayOf(process.stdout, session.output))
  await printRecord(session.output, plan, configuration.plan.reply, text)
}

function printNotCompared({ notCompared = [] }: ShownPlan): void {
  for (const one of notCompared) printNote(`Not compared: ${notComparedText(one)}`)
}

export async function planFiles(
  session: CommandContext,
  paths: readonly string[],
  flags: PlanFlags & { out?: string | undefined; markdown?: boolean | undefined },
): Promise<void> {
  if (flags.out !== undefined && flags['without-secrets'])
    throw usageError(
      'A plan without secrets cannot be saved: it does not have all that an apply would send',
      'leave out --without-secrets where the secrets are, or leave out --out',
    )
  if (flags.out !== undefined) checkReplaceable(flags.out)
  const saved = await ask(session, paths, flags)
  if (flags.out !== undefined) writePrivateFile(flags.out, `${JSON.stringify(saved, null, 2)}\n`)
  if (flags.markdown) await writeStdout(formatMarkdown(saved.plan))
  else await printPlan(session, saved.plan)
  printNotCompared(saved.plan)
  if (flags.out !== undefined)
    printNote(`The plan is in ${flags.out}: svc config apply --plan ${flags.out} applies it`)
}

/** Exits with 1 when the files and the service differ. With `watch-exit` nothing else does. */
export async function diffFiles(
  session: CommandContext,
  paths: readonly string[],
  { 'watch-exit': isWatched, ...flags }: PlanFlags & { 'watch-exit'?: boolean | undefined },
): Promise<void> {
  if (isWatched) exitOnLostOutput(exitCodes.unverifiable)
  const { plan } = await differing(session, paths, flags).catch((failure: unknown) => {
    throw isWatched ? unanswered(failure) : failure
  })
  if (plan.changes.length > 0 || plan.left.length > 0) throw new SilentExit(exitCodes.failure)
}

async function differing(session: CommandContext, paths: readonly string[], flags: PlanFlags) {
  const saved = await ask(session, paths, flags, true)
  await printPlan(session, saved.plan)
  printNotCompared(saved.plan)
  return saved
}

/** A failure that would be mistaken for a difference: whether there is one cannot be said. */
function unanswered(failure: unknown): unknown {
  const report = toReport(failure)
  if (report !== undefined && report.exit !== exitCodes.failure) return failure
  const message = report?.error.message ?? (failure instanceof Error ? failure.message : String(failure))
  const { code = 'failed', hint } = report?.error ?? {}
  return new CliError(message, { exit: exitCodes.unverifiable, code, ...(hint && { hint }), cause: failure })
}

export async function applyFiles(
  session: CommandContext,
  paths: readonly string[],
  flags: PlanFlags & {
    plan?: string | undefined
    revision?: string | undefined
    yes?: boolean | undefined
  },
): Promise<void> {
  if ((flags.plan === undefined) === (paths.length === 0))
    throw usageError('Name either files or --plan', 'svc config apply production.yaml')
  const saved = flags.plan === undefined ? await ask(session, paths, flags) : readPlan(flags.plan)
  const { plan, request, substituted } = saved
  const hidden = new VariableMasker(request.body.document, substituted)
  const isPlain = session.output.format === 'plain'
  if (isPlain) await writeStdout(formatPlan(plan, displayOf(process.stdout, session.output)))
  const { renamedByHand = [] } = plan
  if (plan.changes.length === 0 && renamedByHand.length === 0) {
    if (!isPlain) await printPlan(session, plan)
    return
  }
  // A saved plan may be of somebody who may do less.
  if (flags.plan === undefined) checkPlanAllowed(plan)
  printTarget(session.settings)
  await confirmOrThrow(`Apply to ${plan.set}: ${totalsText(plan)}?`, {
    // What the files call an object is nobody's but their own.
    yes: flags.yes || plan.changes.length === 0,
    interactive: session.interactive,
    hint: 'svc config plan shows what would change',
  })
  const { revision } = flags
  const { version, plannedAt } = plan
  const body = { ...request.body, version, plannedAt, ...(revision !== undefined && { revision }) }
  const sent = session.client.request(configuration.apply, { query: request.query, body })
  const reply = await withSpinner('Applying', sent).catch((failure) => {
    throw hidden.failure(failure)
  })
  const done = hidden.plan(reply as z.output<typeof configuration.apply.reply>)
  if (!isPlain) return printRecord(session.output, done, configuration.apply.reply)
  if (done.changes.length === 0)
    return printNote('The set knows what was renamed by hand: nothing else changes')
  printNote(`Applied as ${done.applyId}: ${totalsText(done, true)}`)
}

export type RollbackFlags = Pick<PlanFlags, 'partner' | 'prune' | 'prune-limit'> & {
  revision?: string | undefined
  yes?: boolean | undefined
  'dry-run'?: boolean | undefined
}

/** Shows a rollback, asks, and does it. */
export async function rollBack(session: CommandContext, apply: string, flags: RollbackFlags): Promise<void> {
  const tenant = await namedTenant(session, flags.partner)
  const within = { ...tenant, insists: Object.keys(tenant).length > 0 }
  const id = await resolveId(session.client, 'configuration_apply', apply, within)
  const { prune = false, 'prune-limit': pruneLimit, revision } = flags
  const pruning = { prune, ...(pruneLimit !== undefined && { pruneLimit }) }
  const sent = session.client.request(configurationApplies.plan, { params: { id }, body: pruning })
  const plan = (await withSpinner('Planning', sent)) as RollbackPlan
  const isPlain = session.output.format === 'plain'
  const text = () =>
    formatPlan(plan, displayOf(process.stdout, session.output), 'made by the apply, and kept without --prune')
  if (isPlain) await writeStdout(text())
  if (plan.changes.length === 0 || flags['dry-run']) {
    if (!isPlain) await printRecord(session.output, plan, configurationApplies.plan.reply, text)
    return
  }
  printTarget(session.settings)
  await confirmOrThrow(`Roll back in ${plan.set}: ${totalsText(plan)}?`, {
    yes: flags.yes,
    interactive: session.interactive,
    hint: '--dry-run shows what it would do',
  })
  const { version, plannedAt } = plan
  const body = { ...pruning, version, plannedAt, ...(revision !== undefined && { revision }) }
  const doing = session.client.request(configurationApplies.rollback, { params: { id }, body })
  const done = (await withSpinner('Rolling back', doing)) as z.output<
    typeof configurationApplies.rollback.reply
  >
  if (!isPlain) return printRecord(session.output, done, configurationApplies.rollback.reply)
  printNote(`Rolled back as ${done.applyId}: ${totalsText(done, true)}`)
}

/** @throws usageError when the file is not what `svc config plan --out` wrote */
function readPlan(file: string): SavedPlan {
  const wrong = () => usageError(`${file} is not a saved plan`, 'svc config plan FILE --out PLAN writes one')
  let saved: SavedPlan
  try {
    saved = JSON.parse(readTextFile(file, 'the plan')) as SavedPlan
  } catch (error) {
    throw error instanceof SyntaxError ? wrong() : error
  }
  if (typeof saved?.plan?.version !== 'string' || typeof saved.request?.body?.document !== 'object')
    throw wrong()
  if (!Array.isArray(saved.substituted)) throw wrong()
  return saved
}

export async function exportFile(
  session: CommandContext,
  {
    merge,
    set,
    env = [],
    partner,
  }: {
    merge?: string | undefined
    set?: string | undefined
    env?: string[] | undefined
    partner?: string | undefined
  },
): Promise<void> {
  const before = merge === undefined ? undefined : readMergedFile(merge)
  const query = { ...(await namedTenant(session, partner)), ...(set !== undefined && { set }) }
  const sent = session.client.request(configuration.export, { query })
  const reply = (await withSpinner('Reading', sent)) as z.output<typeof configuration.export.reply>
  // Whatever the format, it may be read again as a file, in which a record must not name a variable.
  const document = escapeVariables(reply.document)
  const { format } = session.output
  if (format !== 'plain' && format !== 'yaml')
    return printRecord(session.output, { ...reply, document }, configuration.export.reply)
  const { exportedYaml, mergedYaml, wholeSection } = await import('./yaml.ts')
  const merged = before && mergedYaml({ ...before, document, skipped: reply.skipped, allowed: env })
  await writeStdout(merged?.text ?? exportedYaml({ ...reply, document }))
  for (const one of reply.skipped) {
    const { section, org, name, reason } = one
    const what = name === wholeSection ? section : `${section} "${name}"${org === null ? '' : ` of ${org}`}`
    const inFile = merged?.kept.has(one) ? `kept as it stands in ${merge}` : `not in ${merge}`
    printNote(`Left out: ${what}: ${reason}${merged ? `; ${inFile}` : ''}`)
  }
}

export async function printSchema(session: Pick<CommandContext, 'output'>): Promise<void> {
  const { toJsonSchema } = await import('../../core/openapi.ts')
  const title = 'Configuration of svc'
  const $schema = 'https://json-schema.org/draft/2020-12/schema'
  await writeJson(session.output, { $schema, title, ...toJsonSchema(ConfigurationFile, 'input') })
}
