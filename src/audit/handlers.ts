import type { Endpoint } from '../core/endpoint.ts'
import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import type { Clock } from '../core/time.ts'
import { type Call, type Handler, type HandlersOf, inSteps, type Preparation } from '../handler.ts'
import type { Storage } from '../storage/open.ts'
import { checkOrgInHistory } from '../tenancy/store.ts'
import { headerLine, trailerLine } from './chain.ts'
import type { ChainEnd } from './checkpoints/jobs.ts'
import type { LocalCopies } from './checkpoints/local-copies.ts'
import { listRestored } from './checkpoints/store.ts'
import type * as contract from './contract.ts'
import { type ListQuery, listEntries, listEntriesAfter } from './entries.ts'
import { sealPendingFor } from './outbox.ts'
import { findAnchor, toHeaderAnchor } from './retention/anchors.ts'
import { withReadLease } from './retention/read-leases.ts'
import { chainOf, orgOfChain, systemChain, toFlatEntry } from './rules.ts'
import * as store from './store.ts'

type Logs = typeof contract.auditLogs

/** Seals the pending entries of the requested chains first, so a person always sees what they just did. */
export const sealedRead = <E extends Endpoint>(
  run: (call: Call<E>) => ReturnType<Extract<Handler<E>, (...args: never[]) => unknown>>,
) => inSteps<E, unknown>({ prepare: sealRequested, run: run as never })

function sealRequested({ storage, scope, query }: Preparation<Endpoint>): Promise<void> {
  const { orgId } = query as { orgId?: string }
  return sealPendingFor(storage, scope, orgId)
}

type ReadCall = Pick<Call<Logs['list']>, 'storage' | 'scope' | 'note'>

/** Reading one organization's log is audited in that organization's own log. */
export async function checkOrgAndNote(
  { storage, scope, note }: ReadCall,
  orgId: string | undefined,
): Promise<void> {
  if (orgId === undefined) return
  await checkOrgInHistory(storage.read, scope, orgId)
  note({ orgId })
}

async function listForCall(call: ReadCall & Pick<Call<Logs['list']>, 'readQuery'>, query: ListQuery) {
  await checkOrgAndNote(call, query.orgId)
  return call.readQuery((on) => listEntries(on, call.scope, query))
}

type AuditLogDependencies = {
  clock: Clock
  /** The last signed checkpoint of each chain, stored outside the database. */
  localCopies: LocalCopies
  /** The signed end of a chain's file, with the head it covers. */
  closing(chain: string): Promise<ChainEnd>
}

export const auditLogHandlers = ({
  clock,
  localCopies,
  closing,
}: AuditLogDependencies): HandlersOf<Logs> => ({
  flat: sealedRead<Logs['flat']>(async ({ query, ...call }) => {
    const { data, pagination } = await listForCall(call, query)
    return { entries: data.map(toFlatEntry), pagination }
  }),

  list: sealedRead<Logs['list']>(async ({ query, ...call }) => {
    const { after, ...rest } = query
    if (after === undefined) return listForCall(call, rest)
    await checkOrgAndNote(call, query.orgId)
    const { readQuery, scope } = call
    return readQuery((on) =>
      listEntriesAfter(on, scope, requestedChain(scope, query.orgId), { ...rest, after }),
    )
  }),

  show: sealedRead<Logs['show']>(({ db, scope, params }) => store.getEntry(db, scope, params.id)),

  search: sealedRead<Logs['search']>(async ({ query, ...call }) => ({
    ...(await listForCall(call, query)),
    query: query.q,
  })),

  heads: sealedRead<Logs['heads']>(async ({ readQueryIfWide, scope }) => {
    const copies = await localCopies.list()
    return { data: await readQueryIfWide((on) => store.listHeads(on, scope, copies)) }
  }),

  chain: inSteps<Logs['chain'], { chain: string; closing: ChainEnd }>({
    prepare: async ({ query, ...call }) => {
      await checkOrgAndNote(call, query.orgId).catch(async (failure: unknown) => {
        // An organization may have been removed from the database: its file still shows what is missing.
        const { orgId } = query
        if (
          call.scope.kind !== 'system' ||
          orgId === undefined ||
          (await localCopies.read(orgId)) === undefined
        )
          throw failure
      })
      const chain = requestedChain(call.scope, query.orgId)
      return { chain, closing: await closing(chain) }
    },
    run: async ({ storage, scope }, { chain, closing: end }) =>
      chainFile({ storage, clock }, scope, chain, end),
  }),
})

/** The chain named, else the caller's own. @throws invalid_request when a partner user names none */
export function requestedChain(scope: Scope, orgId: string | undefined): string {
  if (orgId !== undefined) return chainOf(orgId)
  if (scope.kind === 'system') return systemChain
  if (scope.kind === 'organization') return chainOf(scope.orgId)
  throw invalid([{ path: 'query.orgId', message: 'orgId is required for partner scope' }])
}

type ChainFileDependencies = { storage: Storage; clock: Clock }

/** A chain as a file, from its anchor on. None of its entries is deleted while it is read. */
export const chainFile = (
  { storage, clock }: ChainFileDependencies,
  scope: Scope,
  chain: string,
  { head, checkpoint, keys }: ChainEnd,
): AsyncGenerator<string> =>
  withReadLease(storage, chain, clock, async function* () {
    const anchor = await findAnchor(storage.read, scope, chain)
    const restores = await listRestored(storage.read, chain)
    yield headerLine(orgOfChain(chain), { anchor: toHeaderAnchor(anchor), keys, restores })
    yield* store.chainLines(storage.heavy, scope, chain, head.seq)
    yield trailerLine(head, checkpoint)
  })
