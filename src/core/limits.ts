/**
 * Who counts a limit.
 *
 * - shared: all processes together, in the database (daemon/shared-limiter.ts). For limits that protect people from
 *   guessing and from floods of messages: neither a second process nor a restart gives an attempt back. Each attempt is a
 *   write, so no request that is frequent has one.
 * - process: each process for itself, in memory (daemon/limiter.ts). For limits that protect the service from load.
 * - guard: all processes together, by the password guard (src/identity/password-guard).
 */
type Counting = 'shared' | 'process' | 'guard'

const by =
  <C extends Counting>(counted: C) =>
  (count: number, seconds: number) => ({ count, seconds, counted })
const shared = by('shared')
const perProcess = by('process')
const byGuard = by('guard')

/**
 * Rate limits as sliding windows: most events in a number of seconds. Each can be set with
 * `RATE_LIMIT_<NAME>=<count>/<seconds>` or `off`.
 */
export const defaultLimits = {
  /** Every request, by client address, before authentication. */
  IP: perProcess(600, 60),
  /** Every authenticated request, by user. */
  BEARER: perProcess(300, 60),
  /** Agent requests, by agent. */
  AGENT: perProcess(120, 60),
  /** Bytes of bodies, inflated, by agent, key, user or workload; without a sign-in, by network. */
  BODY_BYTES: perProcess(67_108_864, 60),
  /** The same of users, keys and workloads over a longer time: what they write stays in the audit log. */
  BODY_BYTES_HOURLY: perProcess(268_435_456, 3600),
  /** Tokens and updates: what an agent may change about itself, by device. */
  AGENT_CHANGES: perProcess(60, 3600),
  /** Audit entries about anything else, by device: entries beyond the limit are summarized in one. */
  AGENT_AUDIT: perProcess(60, 3600),
  /**
   * Events about values that an agent reports and that changed, by device: events beyond the limit are
   * summarized in one.
   */
  AGENT_EVENTS: perProcess(60, 3600),
  /** Entries of the machine's own logs, by device. */
  EVENT_LOGS: perProcess(12_000, 3600),
  /** Bytes of logs as stored, by device. */
  LOG_BYTES: perProcess(67_108_864, 3600),
  /** Sign-ins started at identity providers, by client address, and by address and organization. */
  SSO_IP: shared(30, 300),
  SSO_ORG: shared(10, 300),
  /** Returns from an identity provider, and codes exchanged, by client address. */
  SSO_RETURN: shared(60, 300),
  LOGIN_IP: shared(10, 300),
  /** Sign-ins started that are approved in a browser elsewhere, by client address. */
  DEVICE_START: shared(10, 300),
  /** Codes of such sign-ins entered, by user. */
  DEVICE_CODE: shared(20, 300),
  /** Requests whether such a sign-in is approved, by its code. */
  DEVICE_POLL: perProcess(20, 60),
  /** By client address and e-mail. */
  LOGIN_ACCOUNT: shared(5, 300),
  /**
   * Wrong passwords after which an account is locked for one network, for as long as they are counted; and from
   * all networks together, after which a stranger needs a proof besides the password.
   */
  WRONG_PASSWORDS_NETWORK: byGuard(5, 900),
  WRONG_PASSWORDS_ACCOUNT: byGuard(50, 3600),
  /** Codes tried, by user. */
  MFA: shared(5, 300),
  /** Invitations previewed, and accepted, by client address. */
  INVITE_PREVIEW: shared(30, 600),
  INVITE_ACCEPT: shared(10, 3600),
  /** Invitations sent or resent: to one address by one tenant, by one inviter, and by one tenant. */
  INVITE_ADDRESS: shared(5, 3600),
  INVITE_INVITER: shared(100, 3600),
  INVITE_TENANT: shared(500, 3600),
  /** Mails that anybody can have sent to an address, whoever owns it: of each kind. */
  LETTER: shared(5, 3600),
  /** Changes of how a user signs in, each of which is mailed to the user: by account, and by administrator. */
  NOTICE: shared(10, 3600),
  /** Passwords tried by a signed-in user, by user. */
  PASSWORD: shared(5, 300),
  /** Reset links requested, by client address. */
  FORGOT: shared(3, 3600),
  REGISTER: shared(5, 3600),
  REGISTER_PARTNER: shared(3, 3600),
  /** Registration links tried, by client address. */
  VERIFY_EMAIL: shared(10, 300),
  /** Codes sent for one sign-in, by its tempToken. */
  SMS: shared(3, 300),
  /** Codes sent for sign-ins, by phone number. */
  SMS_PHONE: shared(5, 900),
  /** Codes sent to prove a phone number, by that number. */
  PHONE: shared(3, 3600),
  /** Workload tokens presented, by client address: a CI system runs many jobs behind one address. */
  FEDERATED: shared(60, 60),
  /** Configurations planned and applied, by user, key or workload: each is one long transaction. */
  CONFIG: perProcess(60, 60),
  ENROLL_IP: shared(10, 60),
  /** Proofs of agents whose token is refused, by client address: after a restore all of a site come at once. */
  AGENT_PROOF: shared(60, 60),
} satisfies Record<string, Limit & { counted: Counting }>

export type Limit = { count: number; seconds: number }
export type LimitName = keyof typeof defaultLimits
type CountedBy<C extends Counting> = {
  [Name in LimitName]: (typeof defaultLimits)[Name]['counted'] extends C ? Name : never
}[LimitName]
export type SharedLimit = CountedBy<'shared'>
export type ProcessLimit = CountedBy<'process'>
export type Limits = Record<LimitName, Limit | undefined>

export const isShared = (name: SharedLimit | ProcessLimit): name is SharedLimit =>
  defaultLimits[name].counted === 'shared'
