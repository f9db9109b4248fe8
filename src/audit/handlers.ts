import type { Endpoint } from '../core/endpoint.ts'
import { invalid } from '../core/errors.ts'
import type { Scope } from '../core/scope.ts'
import { type Call, type Handler, type HandlersOf, inSteps } from '../handler.ts'
import type { Db, Storage } from '../storage/open.ts'
import { checkOrg } from '../tenancy/store.ts'
import { genesis, headerLine, trailerLine } from './chain.ts'
import type * as contract from './contract.ts'
import { sealPending } from './outbox.ts'
import { chainOf, orgOf, systemChain, toFlatEntry } from './rules.ts'
import * as store from './store.ts'

type Logs = typeof contract.auditLogs

/** Seals what is pending first, so that a person always sees what they just did. */
const sealed = <E extends Endpoint>(
  run: (call: Call<E>) => ReturnType<Extract<Handler<E>, (...args: never[]) => unknown>>,
) => inSteps<E, void>({ prepare: ({ storage }) => sealPending(storage), run: run as never })

async function read(db: Db, scope: Scope, query: Parameters<typeof store.listEntries>[2]) {
  if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
  const { data, total } = await store.listEntries(db, scope, query)
  const totalPages = total < 0 ? -1 : Math.ceil(total / query.limit)
  return { data, pagination: { page: query.page, limit: query.limit, total, totalPages } }
}

export const auditLogs: HandlersOf<Logs> = {
  flat: sealed<Logs['flat']>(async ({ storage, scope, query }) => {
    const { data, pagination } = await read(storage.heavy, scope, query)
    return { entries: data.map(toFlatEntry), pagination }
  }),

  list: sealed<Logs['list']>(({ storage, scope, query }) => read(storage.heavy, scope, query)),

  show: sealed<Logs['show']>(({ db, scope, params }) => store.getEntry(db, scope, params.id)),

  search: sealed<Logs['search']>(async ({ storage, scope, query }) => ({
    ...(await read(storage.heavy, scope, query)),
    query: query.q,
  })),

  heads: sealed<Logs['heads']>(async ({ db, scope }) => ({ data: await store.listHeads(db, scope) })),

  chain: sealed<Logs['chain']>(async ({ db, storage, scope, query }) => {
    if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
    return chainFile(storage, scope, chainAsked(scope, query.orgId))
  }),
}

/** The chain named, else the caller's own. @throws invalid_request when a partner user names none */
function chainAsked(scope: Scope, orgId: string | undefined): string {
  if (orgId !== undefined) return chainOf(orgId)
  if (scope.kind === 'system') return systemChain
  if (scope.kind === 'organization') return chainOf(scope.orgId)
  throw invalid([{ path: 'query.orgId', message: 'orgId is required for partner scope' }])
}

async function* chainFile(storage: Storage, scope: Scope, chain: string): AsyncGenerator<string> {
  const head = (await store.findHead(storage.read, scope, chain)) ?? { seq: 0, checksum: genesis }
  yield headerLine(orgOf(chain))
  yield* store.chainLines(storage.heavy, scope, chain, head.seq)
  yield trailerLine(head)
}
