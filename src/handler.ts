import type { BodyOf, Endpoint, ParamsOf, QueryOf, Redirect, ReplyOf, StreamType } from './core/endpoint.ts'
import type { LimitName } from './core/limits.ts'
import type { Scope } from './core/scope.ts'
import type { Instant } from './core/time.ts'
import type { Db, Storage } from './storage/open.ts'
import type { AgentRole, TokenStanding } from './storage/schema/agent-tables.ts'
import type { AgentDeviceRow } from './storage/schema/tables.ts'

/** A signed-in person, as their token and the database say at this moment. */
export type UserCaller = {
  kind: 'user'
  id: string
  email: string
  name: string
  scope: Scope
  roleId: string | null
  permissions: ReadonlySet<string>
  /** The session carries a verified factor. */
  mfa: boolean
  /** A factor is enrolled. */
  mfaEnabled: boolean
  /** A role or a setting demands a factor that is not enrolled. */
  mfaDemanded: boolean
  sessionId: string
  /** The identity provider of the organization, by which they came in: it says nothing of other memberships. */
  ssoProviderId: string | null
  /** When such a session ends, whatever is proved in it; null: it came by no provider. */
  endsBy: Instant | null
  /** The partner waits for approval, or the invitation to be accepted: only what is open while enrolling may be done. */
  barred?: 'tenant_pending' | 'invitation_pending' | undefined
  /** When they last proved who they are, in this session or the one before it. */
  provedAt: Instant
}

/** A program with an API key. It sees the key's organization, as far as whoever made the key does. */
export type ApiKeyCaller = {
  kind: 'api_key'
  id: string
  name: string
  orgId: string
  scope: Scope
  /** The key's scopes, as far as whoever made it still holds them. */
  permissions: ReadonlySet<string>
}

/** The largest enrollment key that a workload may mint. */
export type EnrollmentKeyLimits = { maxUsage: number; maxTtlMinutes: number }

/** A job of a CI system, which signed in with the token it has there. It sees the organization of its trust policy. */
export type WorkloadCaller = {
  kind: 'workload'
  /** Of the trust policy. */
  id: string
  name: string
  orgId: string
  scope: Scope
  permissions: ReadonlySet<string>
  keyLimits: EnrollmentKeyLimits
  /** Which run of the workflow it is, in words. */
  run: string
}

/** An enrolled machine. */
export type AgentCaller = {
  kind: 'agent'
  role: AgentRole
  /** Of its token, and the token's SHA-256. */
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
  /** Instead of the contract's, when the call turned out to be only a step of it. */
  action?: string
  orgId?: string | null
  /** Who did it, when the caller was not known before. */
  actor?: { kind: 'user' | 'agent' | 'workload'; id: string; email: string | null }
  resourceId?: string
  resourceName?: string
  before?: unknown
  after?: unknown
  details?: Record<string, unknown>
  /** Nothing is another than before: there is no entry. */
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
  /** The connection is of the machine itself, whatever headers say. */
  isLocal: boolean
  userAgent: string | null
  cookies: Readonly<Record<string, string | undefined>>
  note(facts: AuditFacts): void
  /** Aborts when the client hangs up before it has its reply. */
  gone(): AbortSignal
} & (E extends { question: true } ? QuestionCall : unknown)

/** Of what the contract says that it is a question. */
type QuestionCall = {
  /**
   * Asks what may cost much, as the caller decides: a filter, a search, a list in an order of theirs. For a limited
   * time, and a few at once. @throws too_many_questions, question_too_slow
   */
  ask<T>(work: (db: Db) => Promise<T>): Promise<T>
}

/** `db` is the transaction of a change, or a reading connection. */
export type Call<E extends Endpoint> = RequestInput<E> & { db: Db; storage: Storage }

/** Before the transaction: work that waits for something else, and limits. Its own writes stand alone. */
export type Preparation<E extends Endpoint> = RequestInput<E> & {
  storage: Storage
  /** Counts one event, or so many; throws 429 when the window is full. */
  limit(name: LimitName, key: string, amount?: number): void
  /**
   * Before something is sent that cannot be taken back: of all requests under one Idempotency-Key one gets past this, as
   * long as it does not fail. @throws idempotency_in_progress
   */
  claim(): Promise<void>
}

/** A stream that says of which type it is, and what goes before it. */
export type StreamReply = { type: StreamType; headers: Record<string, string>; pieces: AsyncIterable<string> }

/** A file, or where it is instead. It is closed in any case, read or not. */
export type FileReply =
  | { location: string }
  | {
      name: string
      size: number
      /** SHA-256, 64 hex characters: what the file is known by. */
      checksum: string
      /** Both ends included; as fast as the pieces are taken. Called once at most. */
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

/** A handler in two steps: `prepare` outside the transaction, `run` inside it with what was prepared. */
export type TwoStepHandler<E extends Endpoint, P> = {
  prepare(call: Preparation<E>): Promise<P | EarlyReply<HandlerReply<E>>>
  run(call: Call<E>, prepared: P): Promise<HandlerReply<E>>
}

/**
 * What `prepare` gives when there is nothing left for `run` to do. Telemetry alone may, which leaves no audit entry: what it
 * writes has been written then, in a transaction that it shares.
 */
export class EarlyReply<Reply> {
  readonly reply: Reply

  constructor(reply: Reply) {
    this.reply = reply
  }
}

/** A handler for every entry of a group of the contract. */
export type HandlersOf<Group> = {
  [Name in keyof Group]: Group[Name] extends Endpoint ? Handler<Group[Name]> : never
}

/** Ties the two steps together by the type of what is prepared. */
export const inSteps = <E extends Endpoint, P>(steps: TwoStepHandler<E, P>): Handler<E> =>
  steps as TwoStepHandler<E, never>
