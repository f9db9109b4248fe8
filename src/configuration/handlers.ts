import { sealPendingFor } from '../audit/outbox.ts'
import type { Cipher } from '../core/cipher.ts'
import { newId } from '../core/new-id.ts'
import { safeParse } from '../core/schema.ts'
import type { Scope } from '../core/scope.ts'
import type { Instant } from '../core/time.ts'
import { type Caller, type HandlersOf, inSteps } from '../handler.ts'
import type { Db } from '../storage/open.ts'
import { readableParts, readRefusal } from './access.ts'
import { mayReadAudit } from './audit-trail.ts'
import { type configuration, kinds, type Plan, type Section, sections, uncoveredBy } from './contract.ts'
import { withCulprits } from './culprits.ts'
import { configurationOf, recordApply } from './history/applied.ts'
import { configurationApplyHandlers } from './history/handlers.ts'
import { ownedPages } from './owners.ts'
import { Planner } from './planner.ts'
import type { InnerCalls } from './ports.ts'
import {
  type ConfigurationRequest,
  canonical,
  isElsewhere,
  isSectionOf,
  type StoredObject,
  secretFields,
  type Values,
} from './rules.ts'
import { State } from './state.ts'
import * as store from './store.ts'
import {
  type ConfiguredTenant,
  callerName,
  findConfiguredTenant,
  refusalFacts,
  rehearse,
  withScope,
} from './tenant.ts'
import { TimeSlice } from './time-slice.ts'

type Handlers = HandlersOf<typeof configuration>

export function configurationHandlers(on: { calls: InnerCalls; cipher: Cipher }): {
  configuration: Handlers
  configurationApplies: ReturnType<typeof configurationApplyHandlers>
} {
  const { calls, cipher } = on
  return {
    configurationApplies: configurationApplyHandlers(on),
    configuration: {
      plan: inSteps<typeof configuration.plan, Plan>({
        async prepare({ storage, scope, caller, query, body, now, ip, userAgent, limit, note }) {
          limit('CONFIG', 'id' in caller ? caller.id : ip)
          const context = { admitted: caller, caller, ip, userAgent, now, details: {}, isRehearsal: true }
          const { plan, tenant, run } = await rehearse(storage, async (tx) => {
            const tenant = await findConfiguredTenant(tx, scope, query)
            note(refusalFacts(tenant, body.set))
            const setId = await store.findSet(tx, tenant.scope, tenant.owner, body.set)
            const run = new Planner(tx, {
              calls,
              cipher,
              on: withScope(context, tenant.scope),
              request: body,
              setId,
              ...tenant,
            })
            return { plan: { ...(await run.plan()), plannedAt: now }, tenant, run }
          })
          if (!body.culprits || !mayReadAudit(calls, caller)) return plan
          // Of the caller: what belongs to a partner is in the chain of the system, which only its administrators read.
          await sealPendingFor(storage, scope)
          // After the transaction: on SQLite it holds the one writer.
          const scopes = { scope, tenant: tenant.scope }
          return { ...plan, changes: await withCulprits(storage.heavy, scopes, plan.changes, run.trail) }
        },
        run: async (_, plan) => plan,
      }),

      apply: inSteps<typeof configuration.apply, void>({
        async prepare({ caller, ip, limit }) {
          limit('CONFIG', 'id' in caller ? caller.id : ip)
        },
        async run({ db, scope, caller, query, body, now, ip, userAgent, note }) {
          const tenant = await findConfiguredTenant(db, scope, query)
          const { set, version, plannedAt, revision = null } = body
          note(refusalFacts(tenant, set))
          const apply = { id: newId(), set, revision, rollsBack: null, by: callerName(caller), now }
          const details = { configuration: configurationOf(apply) }
          const setId = await store.beginApply(db, tenant.scope, tenant.owner, apply)
          const context = { admitted: caller, caller, ip, userAgent, now, details, isRehearsal: false }
          const request: ConfigurationRequest = body
          const run = new Planner(db, {
            calls,
            cipher,
            on: withScope(context, tenant.scope),
            request,
            setId,
            ...tenant,
          })
          const made = await run.plan({ version, plannedAt })
          note(
            await recordApply(db, cipher, tenant, {
              setId,
              apply,
              made,
              applied: run.applied,
              nameChanges: run.nameChanges,
            }),
          )
          return { ...made, plannedAt: now, applyId: apply.id }
        },
      }),

      export: inSteps<typeof configuration.export, Exported>({
        async prepare({ storage, scope, caller, query, now, ip, limit }) {
          limit('CONFIG', 'id' in caller ? caller.id : ip)
          // Long: it reads everything.
          const tenant = await findConfiguredTenant(storage.read, scope, query)
          return exportConfiguration(storage.heavy, on, caller, { ...tenant, now, set: query.set })
        },
        run: async (_, found) => found,
      }),

      async sets({ db, scope, query }) {
        const tenant = await findConfiguredTenant(db, scope, query)
        return { data: await store.listSets(db, tenant.scope, tenant.owner) }
      },
    },
  }
}

/** The fields of an object that may be shown. */
function exportableFields(state: State, section: Section, stored: StoredObject): Record<string, unknown> {
  const file = state.file(kinds[section], stored)
  const secret = secretFields(kinds[section], file)
  return Object.fromEntries(Object.entries(file).filter(([name]) => !secret.includes(name)))
}

/** What a file cannot say of an object, or undefined. */
function whyNotExportable(state: State, section: Section, stored: StoredObject): string | undefined {
  const kind = kinds[section]
  if (state.named(section, stored.orgId, stored.key).length > 1)
    return 'there are several of this name: rename all but one'
  if (section !== 'organizations' && stored.orgId !== null && state.org(stored) === null)
    return 'its organization is not visible'
  const file = exportableFields(state, section, stored)
  for (const { name, field, refersTo } of kind.fields) {
    const value = stored.record[field]
    if (refersTo === undefined || (typeof value !== 'string' && !Array.isArray(value))) continue
    const meant = [file[name] ?? []].flat().map((one) => state.referred(refersTo, stored.orgId, String(one)))
    const ids = meant.map(([one]) => one?.id)
    const isPlain = meant.every((all) => all.length === 1)
    if (!isPlain || isElsewhere([value].flat(), ids))
      return `its ${name} is not visible, or has the name of another`
  }
  const read = safeParse(kind.schema, file)
  if (read.success) return undefined
  const [issue] = read.error.issues
  return `${issue!.path.join('.')} ${issue!.message}`
}

/** Milliseconds of an export, which holds up nobody. */
const exportMs = 60_000

type Exported = Awaited<ReturnType<typeof exportConfiguration>>

async function exportConfiguration(
  db: Db,
  { calls, cipher }: { calls: InnerCalls; cipher: Cipher },
  caller: Caller,
  { scope, owner, now, set }: ConfiguredTenant & { now: Instant; set: string | undefined },
) {
  const state = new State(db, { scope, cipher, owner, now })
  const document: Record<string, Values[]> = {}
  const skipped: { section: Section; org: string | null; name: string; reason: string }[] = []
  const readable: Section[] = []
  const timeSlice = new TimeSlice(exportMs)
  const yieldIfDue = () => timeSlice.yieldIfDue()
  await state.read('organizations', yieldIfDue)
  if (scope.kind === 'partner' && scope.orgs !== 'all')
    skipped.push({ section: 'organizations', org: null, name: '*', reason: 'you see selected organizations' })
  const own = sections.filter((section) => isSectionOf(owner.orgId, section))
  for (const section of own) {
    const refused = readRefusal(calls, section, caller)
    if (refused !== undefined) {
      skipped.push({ section, org: null, name: '*', reason: refused })
      continue
    }
    await state.read(section, yieldIfDue)
    readable.push(section)
    for (const { field } of readableParts(calls, section, caller, []))
      await state.readPart(section, field, true)
  }
  const setId = set && (await store.findSet(db, scope, owner, set))
  for (const section of readable) {
    const others = set === undefined ? undefined : await otherOwners(db, scope, section, setId)
    const objects: { order: string; object: Values }[] = []
    for (const stored of state.all(section)) {
      await yieldIfDue()
      const org = state.org(stored)
      const other = others?.get(stored.id)
      const reason = other ? `belongs to the set "${other}"` : whyNotExportable(state, section, stored)
      if (reason !== undefined) skipped.push({ section, org, name: stored.key, reason })
      else {
        const object = { ...(org !== null && { org }), ...exportableFields(state, section, stored) }
        objects.push({ order: orderOf(object), object })
      }
    }
    objects.sort((one, other) => (one.order < other.order ? -1 : 1))
    document[section] = objects.map(({ object }) => object)
  }
  return { document, skipped, uncovered: uncoveredBy(own) }
}

/** Names of the sets that own objects of a section, by the id of the object, but for one set. */
async function otherOwners(
  db: Db,
  scope: Scope,
  section: Section,
  setId: string | undefined,
): Promise<Map<string, string>> {
  const others = new Map<string, string>()
  for await (const owned of ownedPages(db, scope, section))
    for (const { id, ownership } of owned) if (ownership.set.id !== setId) others.set(id, ownership.set.name)
  return others
}

const orderOf = ({ org, slug, email, name }: Record<string, unknown>): string =>
  canonical([org ?? '', slug ?? email ?? name])
