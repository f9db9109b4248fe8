import type { z } from 'zod'
import type { ErrorCode } from './errors.ts'
import type { EventType } from './event-types.ts'
import type { LimitName } from './limits.ts'
import type { Permission } from './permissions.ts'
import type { AuditedResource } from './schema.ts'
import type { ScopeKind } from './scope.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Who may call an endpoint. */
export type Access =
  | {
      who: 'public'
      /** A bearer token is looked at when there is one. */
      session?: true
    }
  | {
      who: 'agent'
      /** Open to the watchdog of the agent as well, which has a token of its own. */
      watchdog?: true
      /** A new token counts also when it was not confirmed in time: to be told so. */
      lapsed?: true
      /**
       * To an agent, an id that no device has is a record that does not exist. So is the id of
       * another device, or the answer would tell which ids there are. A token that no agent has is refused first.
       */
      unknown?: 'not_found'
    }
  | {
      who: 'user'
      scopes: readonly ScopeKind[]
      permission?: Permission
      /** The session must carry a verified factor (403 mfa_required). */
      mfa: boolean
      /** Open to those who still have to enrol a factor (never 428). */
      whileEnrolling: boolean
      /** Of a partner's users only for those who see all its organizations. */
      wholePartner: boolean
      /** Not for members narrowed to some sites or groups of devices: it reaches all devices of an organization. */
      wholeOrganization: boolean
      /** Open to API keys as well: those whose scopes hold the permission. */
      key: boolean
      /** Open to workloads as well: those whose trust policy names the permission. */
      workload: boolean
    }

const allScopes: readonly ScopeKind[] = ['organization', 'partner', 'system']

export const publicAccess: Extract<Access, { who: 'public' }> = { who: 'public' }
type AgentAccess = Extract<Access, { who: 'agent' }>

export const agentAccess: AgentAccess = { who: 'agent' }
export const agentOrWatchdogAccess: AgentAccess = { who: 'agent', watchdog: true }
export const knownAgentAccess: AgentAccess = { who: 'agent', unknown: 'not_found' }

type UserAccess = Extract<Access, { who: 'user' }>
type Needs = Partial<Omit<UserAccess, 'who' | 'key' | 'workload'>>

/**
 * Signed-in people; with `key` also programs with an API key, and with `workload` jobs of a CI system. These come in
 * wherever a permission opens the way to keys.
 */
export function userAccess(needs: Needs & { key: true }): UserAccess & { key: true; workload: boolean }
export function userAccess(needs: Needs & { workload: true }): UserAccess & { key: false; workload: true }
export function userAccess(needs?: Needs): UserAccess & { key: false; workload: false }
export function userAccess(needs: Needs & { key?: boolean; workload?: boolean } = {}): UserAccess {
  const { permission, scopes = allScopes, mfa = false, whileEnrolling = false } = needs
  const {
    wholePartner = false,
    wholeOrganization = false,
    key = false,
    workload = key && permission !== undefined,
  } = needs
  const opens = { key, workload }
  return {
    who: 'user',
    scopes,
    mfa,
    whileEnrolling,
    wholePartner,
    wholeOrganization,
    ...opens,
    ...(permission && { permission }),
  }
}

/** Why an Idempotency-Key is refused. What it would promise is not silently left undone. */
const keyRefusals = {
  reading: 'the request changes nothing and can be repeated',
  repeatable: 'the request can be repeated: it leaves things as the first one did',
  once: 'what the request uses up works once, so that a repetition changes nothing',
  credential: 'the reply holds what proves who somebody is, which is never kept to be given out again',
} as const
type KeyRefusal = keyof typeof keyRefusals

/** Why an endpoint takes no Idempotency-Key; undefined where it is honored. */
export function keyRefusal({ method, idempotencyKey }: Endpoint): string | undefined {
  if (idempotencyKey === 'honored') return undefined
  return keyRefusals[idempotencyKey?.refused ?? (method === 'GET' ? 'reading' : 'repeatable')]
}

type Schema = z.ZodType
type ObjectSchema = z.ZodObject

/**
 * What a change leaves in the audit log, or why it leaves nothing. A reading that is audited says for how many
 * minutes the same caller's same reading leaves no second entry: `quietFor`. Of an agent that comes often with what changes
 * nothing that people decide, several may be told of in one: `gathered`.
 */
type Audit =
  | { action: string; resource: AuditedResource; quietFor?: number; gathered?: true }
  | { unaudited: string }

export type StreamType =
  | 'application/x-ndjson'
  | 'application/json'
  | 'text/csv; charset=utf-8'
  | 'application/samlmetadata+xml'

/** Where a browser is sent, and the cookies it is given on the way; `null` takes one away. */
export type Redirect = { location: string; cookies?: readonly Cookie[] }
export type Cookie = {
  name: string
  value: string | null
  path: string
  seconds: number
  /** Over HTTPS alone. */
  secure: boolean
  /** Comes along also when another site posts to us, which only secure ones may. */
  crossSite: boolean
}

/**
 * The one description of an endpoint. The route, validation, permission check, transaction, audit entry,
 * response serializer, OpenAPI document, typed client, command-line flags and isolation test all come from
 * it.
 */
export type Endpoint = {
  method: Method
  /** Below /api/v1, with `:name` parameters. */
  path: string
  summary: string
  /** Section of the reference page. */
  tag: string
  access: Access
  params?: ObjectSchema
  query?: ObjectSchema
  body?: Schema
  /** Fields of the body that may come as a header instead, a bearer token without its scheme. */
  headers?: Readonly<Record<string, string>>
  /**
   * Said of every POST, and of others where a repetition would do something once more: whether a request that is sent
   * again under its Idempotency-Key gets the first reply, or why it has no use for such a key (400, `keyRefusal`).
   */
  idempotencyKey?: 'honored' | { refused: KeyRefusal }
  /** Success status; 200 unless something is created or queued. */
  status?: 200 | 201 | 202 | 302
  /**
   * Met by a browser on its way: the handler says where it goes on (302), and so may a failure. It may change
   * something although it is a GET: a browser that comes from elsewhere knows no other.
   */
  redirects?: true
  /** The body comes as a form (application/x-www-form-urlencoded). */
  form?: true
  reply: Schema
  /** The reply is a stream of one of these types; of the first, unless the handler says. */
  streams?: readonly [StreamType, ...StreamType[]]
  /**
   * The reply is a file: its bytes as they are, in part where a range of them is asked for, or 302 to where they are. HEAD
   * is answered as well.
   */
  bytes?: true
  /** Required on everything that is not a GET; a GET needs none. */
  audit?: Audit
  /** What webhooks may hear of it. */
  emits?: readonly EventType[]
  /** What the reply does to the session cookies (daemon/browser.ts). */
  session?: 'starts' | 'renews' | 'ends'
  /** Limit per client address, of agents per device, that guards the endpoint besides the general ones. */
  limit?: LimitName
  /** The handler may ask what costs as much as the caller wants (`call.ask`). */
  question?: true
  /** Failures worth documenting beyond those every endpoint has. */
  errors?: readonly ErrorCode[]
  /** A body that works; ids of records are filled in by whoever uses it. */
  example?: Record<string, unknown>
  /** Most bytes of body accepted; 1 MiB unless told, and 64 KiB from whoever need not say who they are. */
  maxBody?: number
  /** The body may come with Content-Encoding: gzip; `maxBody` is what it may inflate to. */
  gzip?: true
}

type Decided<E extends Endpoint> = E['method'] extends 'POST'
  ? { idempotencyKey: 'honored' | { refused: KeyRefusal } }
  : { idempotencyKey?: 'honored' }

/** Keeps the literal type of an entry, so that client and handler know their shapes. */
export const endpoint = <const E extends Endpoint>(entry: E & Decided<E>): E => entry

type Out<S> = S extends z.ZodType ? z.output<S> : undefined
type In<S> = S extends z.ZodType ? z.input<S> : undefined

export type ParamsOf<E extends Endpoint> = Out<E['params']>
export type QueryOf<E extends Endpoint> = Out<E['query']>
export type BodyOf<E extends Endpoint> = Out<E['body']>
/** What a handler returns: the reply before it is serialized. */
export type ReplyOf<E extends Endpoint> = z.input<E['reply']>

type Need<K extends string, T> = [T] extends [undefined]
  ? unknown
  : Record<never, never> extends T
    ? { [P in K]?: T }
    : { [P in K]: T }

/** What a caller gives: `{ params, query, body }`, each only where the entry has it. */
export type InputOf<E extends Endpoint> = Need<'params', In<E['params']>> &
  Need<'query', In<E['query']>> &
  Need<'body', In<E['body']>>

export type Contract = { readonly [group: string]: { readonly [name: string]: Endpoint } }

/** Every entry with its name, such as `sites.create`. */
export function entriesOf(contract: Contract): { name: string; entry: Endpoint }[] {
  return Object.entries(contract).flatMap(([group, entries]) =>
    Object.entries(entries).map(([name, entry]) => ({ name: `${group}.${name}`, entry })),
  )
}

export const maxPublicBody = 64 * 1024

export const bodyLimitOf = ({ maxBody, access }: Endpoint): number =>
  maxBody ?? (access.who === 'public' ? maxPublicBody : 1024 * 1024)

export const isMutation = (entry: Endpoint): boolean => entry.method !== 'GET' || entry.redirects === true
