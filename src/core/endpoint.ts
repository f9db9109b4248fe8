import type { z } from 'zod'
import type { ErrorCode } from './errors.ts'
import type { EventType } from './event-types.ts'
import type { ProcessLimit, SharedLimit } from './limits.ts'
import type { Permission } from './permissions.ts'
import type { QuotaName } from './quotas.ts'
import type { AuditedResource } from './schema.ts'
import type { ScopeKind } from './scope.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Who may call an endpoint. */
export type Access =
  | {
      who: 'public'
      /** A bearer token is checked when one is sent. */
      session?: true
    }
  | {
      who: 'agent'
      /** Also open to the agent's watchdog, which has a separate token. */
      watchdog?: true
      /** Also accepts a new token that was not confirmed in time, to report exactly that. */
      lapsed?: true
      /**
       * The id of no device, and of another device, answers 404 to an agent: any other answer would reveal
       * which ids exist. A token that belongs to no agent is refused first.
       */
      unknown?: 'not_found'
    }
  | {
      who: 'user'
      scopes: readonly ScopeKind[]
      permission?: Permission
      /** The session must carry a verified factor (403 mfa_required). */
      mfa: boolean
      /** Open to users who still have to enroll a factor (never 428). */
      whileEnrolling: boolean
      /** Of a partner's users, only those who see all its organizations. */
      wholePartner: boolean
      /**
       * Closed to members restricted to some sites or device groups: it reaches all devices of an organization.
       */
      wholeOrganization: boolean
      /** Also open to API keys whose scopes include the permission. */
      key: boolean
      /**
       * Also open to workloads whose trust policy names the permission; `files`: within the files that they plan or apply
       * alone. Policies that were written for something else reach no more by that.
       */
      workload: boolean | 'files'
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
 * Signed-in users; with `key` also programs with an API key, and with `workload` jobs of a CI system. An
 * endpoint that is open to keys and requires a permission is open to workloads by default.
 */
export function userAccess(
  needs: Needs & { key: true; workload?: true },
): UserAccess & { key: true; workload: boolean }
export function userAccess<const W extends true | 'files'>(
  needs: Needs & { workload: W },
): UserAccess & { key: false; workload: W }
export function userAccess(needs?: Needs): UserAccess & { key: false; workload: false }
export function userAccess(needs: Needs & { key?: boolean; workload?: boolean | 'files' } = {}): UserAccess {
  const { permission, scopes = allScopes, mfa = false, whileEnrolling = false } = needs
  const {
    wholePartner = false,
    wholeOrganization = false,
    key = false,
    workload = key && permission !== undefined,
  } = needs
  return {
    who: 'user',
    scopes,
    mfa,
    whileEnrolling,
    wholePartner,
    wholeOrganization,
    key,
    workload,
    ...(permission && { permission }),
  }
}

/** Why an Idempotency-Key is refused. Accepting it without honoring it would break its promise silently. */
const keyRefusals = {
  reading: 'the request changes nothing and can be repeated',
  repeatable: 'the request can be repeated: the result is the same as after the first one',
  once: 'the request uses up something that works once, so that a repetition changes nothing',
  credential: 'the reply contains a credential, which is never stored to be sent again',
} as const
type KeyRefusal = keyof typeof keyRefusals

/** Why an endpoint accepts no Idempotency-Key; undefined where it is honored. */
export function keyRefusal({ method, idempotencyKey }: Endpoint): string | undefined {
  if (idempotencyKey === 'honored') return undefined
  return keyRefusals[idempotencyKey?.refused ?? (method === 'GET' ? 'reading' : 'repeatable')]
}

type Schema = z.ZodType
type ObjectSchema = z.ZodObject

/**
 * What a change records in the audit log, or why it records nothing. `quietFor`: minutes during which the same
 * read by the same caller adds no second entry. `gathered`: frequent changes by an agent, of things that no
 * person decides, may share one entry.
 */
type Audit =
  | { action: string; resource: AuditedResource; quietFor?: number; gathered?: true }
  | { unaudited: string }

export type StreamType =
  | 'application/x-ndjson'
  | 'application/json'
  | 'text/csv; charset=utf-8'
  | 'application/samlmetadata+xml'

/** The address a browser is redirected to, and the cookies set with the redirect; `null` deletes one. */
export type Redirect = { location: string; cookies?: readonly Cookie[] }
export type Cookie = {
  name: string
  value: string | null
  path: string
  seconds: number
  /** Sent over HTTPS only. */
  secure: boolean
  /** Also sent with cross-site requests (SameSite=None), which only `secure` cookies may be. */
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
  /** Fields of the body that may be sent as a header instead; a bearer token without its scheme. */
  headers?: Readonly<Record<string, string>>
  /**
   * Declared by every POST, and by others that would do something again when repeated: whether a request sent
   * again under its Idempotency-Key gets the first reply, or why the endpoint refuses such a key (400,
   * `keyRefusal`).
   */
  idempotencyKey?: 'honored' | { refused: KeyRefusal }
  /**
   * Its transaction sees the database as it was when it began. Where somebody changes a row meanwhile that it changes too, it
   * begins again.
   */
  isSnapshot?: true
  /** Success status; 200 unless something is created or queued. */
  status?: 200 | 201 | 202 | 302
  /**
   * Requested by a browser during navigation: the handler returns where to redirect (302), and a failure may do
   * so too. It may change something although it is a GET: a redirect from another site is always a GET.
   */
  redirects?: true
  /** The body is a form (application/x-www-form-urlencoded). */
  form?: true
  reply: Schema
  /** The reply is a stream of one of these types; the first, unless the handler chooses another. */
  streams?: readonly [StreamType, ...StreamType[]]
  /**
   * The reply is a file: its raw bytes, a range of them on request, or a 302 to their address. HEAD is answered
   * as well.
   */
  bytes?: true
  /** Required on everything that is not a GET; optional on a GET. */
  audit?: Audit
  /** Another entry, with the same parameters, that counts the records this one would end, by kind. */
  effect?: Endpoint
  /** Event types that it may send to webhooks. */
  emits?: readonly EventType[]
  /** Effect of the reply on the session cookies (daemon/browser.ts). */
  session?: 'starts' | 'renews' | 'ends'
  /** Limit by client address, for agents by device, in addition to the general ones. */
  limit?: SharedLimit | ProcessLimit
  /** It creates records of this kind, of which each tenant may have so many (`call.quota`). */
  quota?: QuotaName
  /** The handler may run queries whose cost the caller controls (`call.readQuery`). */
  readQuery?: true
  /** Failures worth documenting beyond those of every endpoint. */
  errors?: readonly ErrorCode[]
  /** A valid body; whoever uses it fills in ids of records. */
  example?: Record<string, unknown>
  /** Most bytes of body accepted; 1 MiB by default, and 64 KiB on public endpoints. */
  maxBody?: number
  /** The body may be sent with Content-Encoding: gzip; `maxBody` limits the inflated size. */
  gzip?: true
}

type Decided<E extends Endpoint> = E['method'] extends 'POST'
  ? { idempotencyKey: 'honored' | { refused: KeyRefusal } }
  : { idempotencyKey?: 'honored' }

/** Preserves the literal type of an entry, so that client and handler know their shapes. */
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

/** Input of a caller: `{ params, query, body }`, each only where the entry declares it. */
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

/** Method and path: what the commands that call an endpoint name it by. */
export const routeOf = ({ method, path }: Pick<Endpoint, 'method' | 'path'>): string => `${method} ${path}`

export const maxPublicBody = 64 * 1024

export const bodyLimitOf = ({ maxBody, access }: Endpoint): number =>
  maxBody ?? (access.who === 'public' ? maxPublicBody : 1024 * 1024)

export const isMutation = (entry: Endpoint): boolean => entry.method !== 'GET' || entry.redirects === true
