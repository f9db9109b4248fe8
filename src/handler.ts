import type { BodyOf, Endpoint, ParamsOf, QueryOf, Redirect, ReplyOf, StreamType } from './core/endpoint.ts'
import type { ProcessLimit, SharedLimit } from './core/limits.ts'
import type { QuotaName, QuotaOwner } from './core/quotas.ts'
import type { Scope } from './core/scope.ts'
import type { Instant } from './core/time.ts'
import type { Db, Storage } from './storage/open.ts'
import type { AgentRole, TokenStanding } from './storage/schema/agent-tables.ts'
import type { AgentDeviceRow } from './storage/schema/tables.ts'

/** A signed-in person, according to their token and the current state of the database. */
export type UserCaller = {
  kind: 'user'
  id: string
  email: string
  name: string
  scope: Scope
  roleId: string | null
  permissions: ReadonlySet<string>
  /** The session has a verified second factor. */
  mfa: boolean
  /** A second factor is enrolled. */
  mfaEnabled: boolean
  /** A role or a setting requires a second factor, and none is enrolled. */
  mfaDemanded: boolean
  sessionId: string
  /** The organization's identity provider that signed them in; it does not vouch for their other memberships. */
  ssoProviderId: string | null
  /** When a session from a provider expires: proving a factor later does not extend it. null: there is no provider. */
  endsBy: Instant | null
  /** The partner is not approved, or the invitation not accepted: only endpoints open `whileEnrolling` are allowed. */
  barred?: 'tenant_pending' | 'invitation_pending' | undefined
  /** When they last authenticated, in this session or in the one that it replaced. */
  provedAt: Instant
}

/** A program with an API key. It sees what the key's creator sees of the key's organization. */
export type ApiKeyCaller = {
  kind: 'api_key'
  id: string
  name: string
  orgId: string
  scope: Scope
  /** The scopes of the key, without permissions that its creator no longer has. */
  permissions: ReadonlySet<string>
}

/** The largest enrollment key that a workload may mint. */
export type EnrollmentKeyLimits = { maxUsage: number; maxTtlMinutes: number }

/** A CI job that signed in with a token of its CI system. It sees the organization of its trust policy. */
export type WorkloadCaller = {
  kind: 'workload'
  /** Id of the trust policy. */
  id: string
  name: string
  orgId: string
  scope: Scope
  permissions: ReadonlySet<string>
  keyLimits: EnrollmentKeyLimits
  /** What it may give to people: nothing limits their enrollment keys. */
  grantable: ReadonlySet<string>
  /** Of the trust policy, as it was when the job was admitted. */
  version: number
  /** Description of the workflow run. */
  run: string
}

/** An enrolled machine. */
export type AgentCaller = {
  kind: 'agent'
  role: AgentRole
  /** State of its token; `tokenHash` is the token's SHA-256. */
  standing: TokenStanding
  tokenHash: string
  deviceId: string
  orgId: string
  partnerId: string
  agentId: string
  device: AgentDeviceRow
}

export type Caller = UserCaller | ApiKeyCaller | WorkloadCaller | AgentCaller | { kind: 'nobody' }

type CallerOf<E extends Endpoint> = E['access'] extends { who: 'user' }
  ?
      | UserCaller
      | (E['access'] extends { key: false } ? never : ApiKeyCaller)
      | (E['access'] extends { workload: false } ? never : WorkloadCaller)
  : E['access'] extends { who: 'agent' }
    ? AgentCaller
    : Caller

/** What a handler adds to the audit entry that the pipeline writes for it. */
export type AuditFacts = {
  /** Replaces the contract's action, for a call that is only one step of it. */
  action?: string
  orgId?: string | null
  /** Who did it, if only the handler identifies the caller, as at sign-in. */
  actor?: { kind: 'user' | 'agent' | 'workload'; id: string; email: string | null }
  resourceId?: string
  resourceName?: string
  before?: unknown
  after?: unknown
  details?: Record<string, unknown>
  /** Nothing changed: no entry is written. */
  unchanged?: true
}

type RequestInput<E extends Endpoint> = {
  params: ParamsOf<E>
  query: QueryOf<E>
  body: BodyOf<E>
  caller: CallerOf<E>
  scope: Scope
  now: Instant
  ip: string
  /** Whether the connection comes from this machine, and does not forward another client. */
  isLocal(): boolean
  userAgent: string | null
  cookies: Readonly<Record<string, string | undefined>>
  note(facts: AuditFacts): void
  /** The transaction is rolled back, whatever happens: rows of other tenants must not be locked. */
  isRehearsal: boolean
  /** Aborts when the client disconnects before it has its reply. */
  gone(): AbortSignal
} & (E extends { readQuery: true } ? ReadQueryCall : unknown)

/** For endpoints that the contract marks as a `readQuery`. */
type ReadQueryCall = {
  /**
   * Runs a read whose cost the caller decides: a filter, a search, a list in an order of their choice. Limits its time,
   * and how many run at once. Each statement has that time; work of many statements calls `checkTime` between them, which
   * throws once it has taken that time in all. @throws too_many_questions, question_too_slow
   */
  readQuery<T>(work: (db: Db, checkTime: () => void) => Promise<T>): Promise<T>
  /**
   * Runs a read that is short within one organization, as a read query where the scope spans several: a partner may have tens of
   * thousands, and to find its rows among them takes longer than others may wait for. @throws as `readQuery`
   */
  readQueryIfWide<T>(work: (db: Db) => Promise<T>): Promise<T>
}

/** `db` is the transaction of a mutation, or a read connection. */
export type Call<E extends Endpoint> = RequestInput<E> & { db: Db; storage: Storage } & (E extends {
    quota: QuotaName
  }
    ? QuotaCall
    : unknown)

/** For endpoints whose contract entry has a `quota`. */
type QuotaCall = {
  /** To call before the record is created: checks that its owner may have another one. @throws quota_exceeded */
  quota(owner: QuotaOwner): Promise<void>
}

/**
 * Counts one event, or `amount`. What is counted stays counted, whatever becomes of the request.
 * @throws rate_limited when the window is full
 */
export type CountEvent = {
  (name: SharedLimit, key: string): Promise<void>
  (name: ProcessLimit, key: string, amount?: number): void
}

/** Before the transaction: rate limits, and work that waits for something else. Its writes are not part of it. */
export type Preparation<E extends Endpoint> = RequestInput<E> & {
  storage: Storage
  limit: CountEvent
  /**
   * To call before an irreversible effect, such as sending a message: of all requests with one Idempotency-Key only one
   * passes, unless it fails. @throws idempotency_in_progress
   */
  claim(): Promise<void>
  /**
   * Asks somebody outside. undefined where nobody is asked: within a transaction of another request, which must not wait
   * and may be rolled back.
   */
  outside<T>(work: () => Promise<T>): Promise<T | undefined>
}

/** A stream with its content type and its response headers. */
export type StreamReply = { type: StreamType; headers: Record<string, string>; pieces: AsyncIterable<string> }

/** A file, or the URL to redirect to. The file is always closed, even if it was not read. */
export type FileReply =
  | { location: string }
  | {
      name: string
      size: number
      /** SHA-256 in 64 hex characters: the entity tag of the file. */
      checksum: string
      /** Reads a range, both ends included, no faster than the pieces are consumed. Called at most once. */
      read(from: number, to: number): AsyncIterable<Uint8Array>
      close(): Promise<void>
    }

type HandlerReply<E extends Endpoint> = E extends { streams: readonly string[] }
  ? AsyncIterable<string> | StreamReply
  : E extends { redirects: true }
    ? Redirect
    : E extends { bytes: true }
      ? FileReply
      : ReplyOf<E>

export type Handler<E extends Endpoint> =
  | ((call: Call<E>) => Promise<HandlerReply<E>>)
  | TwoStepHandler<E, never>

/** A handler in two steps: `prepare` outside the transaction, `run` inside it with the result of `prepare`. */
export type TwoStepHandler<E extends Endpoint, P> = {
  prepare(call: Preparation<E>): Promise<P | EarlyReply<HandlerReply<E>>>
  run(call: Call<E>, prepared: P): Promise<HandlerReply<E>>
}

/**
 * Returned by `prepare` when `run` has nothing left to do. Only for telemetry, which has no audit entry: `prepare` has
 * written it by then, in a transaction shared with other requests.
 */
export class EarlyReply<Reply> {
  readonly reply: Reply

  constructor(reply: Reply) {
    this.reply = reply
  }
}

/** A handler for every entry of a contract group. */
export type HandlersOf<Group> = {
  [Name in keyof Group]: Group[Name] extends Endpoint ? Handler<Group[Name]> : never
}

/** Infers the type that `prepare` returns and `run` receives. */
export const inSteps = <E extends Endpoint, P>(steps: TwoStepHandler<E, P>): Handler<E> =>
  steps as TwoStepHandler<E, never>
