/**
 * Rate limits as sliding windows: most events in a number of seconds. Each can be set with
 * `RATE_LIMIT_<NAME>=<count>/<seconds>` or `off`.
 */
export const defaultLimits = {
  /** Every request, by client address, before authentication. */
  IP: { count: 600, seconds: 60 },
  /** Every authenticated request, by user. */
  BEARER: { count: 300, seconds: 60 },
  /** Agent requests, by agent. */
  AGENT: { count: 120, seconds: 60 },
  /** Bytes of bodies, inflated, by agent, key, user or workload; without a sign-in, by network. */
  BODY_BYTES: { count: 67_108_864, seconds: 60 },
  /** The same of users, keys and workloads over a longer time: what they write stays in the audit log. */
  BODY_BYTES_HOURLY: { count: 268_435_456, seconds: 3600 },
  /** Tokens and updates: what an agent may change about itself, by device. */
  AGENT_CHANGES: { count: 60, seconds: 3600 },
  /** Audit entries about anything else, by device: entries beyond the limit are summarized in one. */
  AGENT_AUDIT: { count: 60, seconds: 3600 },
  /**
   * Events about values that an agent reports and that changed, by device: events beyond the limit are
   * summarized in one.
   */
  AGENT_EVENTS: { count: 60, seconds: 3600 },
  /** Entries of the machine's own logs, by device. */
  EVENT_LOGS: { count: 12_000, seconds: 3600 },
  /** Bytes of logs as stored, by device. */
  LOG_BYTES: { count: 67_108_864, seconds: 3600 },
  /** Sign-ins started at identity providers, by client address, and by address and organization. */
  SSO_IP: { count: 30, seconds: 300 },
  SSO_ORG: { count: 10, seconds: 300 },
  /** Returns from an identity provider, and codes exchanged, by client address. */
  SSO_RETURN: { count: 60, seconds: 300 },
  LOGIN_IP: { count: 10, seconds: 300 },
  /** By client address and e-mail. */
  LOGIN_ACCOUNT: { count: 5, seconds: 300 },
  /**
   * Wrong passwords after which an account is locked for one network, for as long as they are counted; and from
   * all networks together, after which a stranger needs a proof besides the password. Counted in the database,
   * for all replicas.
   */
  WRONG_PASSWORDS_NETWORK: { count: 5, seconds: 900 },
  WRONG_PASSWORDS_ACCOUNT: { count: 50, seconds: 3600 },
  /** Codes tried, by user. */
  MFA: { count: 5, seconds: 300 },
  /** Invitations previewed, and accepted, by client address. */
  INVITE_PREVIEW: { count: 30, seconds: 600 },
  INVITE_ACCEPT: { count: 10, seconds: 3600 },
  /** Invitations sent or resent: to one address by one tenant, by one inviter, and by one tenant. */
  INVITE_ADDRESS: { count: 5, seconds: 3600 },
  INVITE_INVITER: { count: 100, seconds: 3600 },
  INVITE_TENANT: { count: 500, seconds: 3600 },
  /** Mails that anybody can have sent to an address, whoever owns it: of each kind. */
  LETTER: { count: 5, seconds: 3600 },
  /** Changes of how a user signs in, each of which is mailed to the user: by account, and by administrator. */
  NOTICE: { count: 10, seconds: 3600 },
  /** Passwords tried by a signed-in user, by user. */
  PASSWORD: { count: 5, seconds: 300 },
  /** Reset links requested, by client address. */
  FORGOT: { count: 3, seconds: 3600 },
  REGISTER: { count: 5, seconds: 3600 },
  REGISTER_PARTNER: { count: 3, seconds: 3600 },
  /** Registration links tried, by client address. */
  VERIFY_EMAIL: { count: 10, seconds: 300 },
  /** Codes sent for one sign-in, by its tempToken. */
  SMS: { count: 3, seconds: 300 },
  /** Codes sent for sign-ins, by phone number. */
  SMS_PHONE: { count: 5, seconds: 900 },
  /** Codes sent to prove a phone number, by that number. */
  PHONE: { count: 3, seconds: 3600 },
  /** Workload tokens presented, by client address: a CI system runs many jobs behind one address. */
  FEDERATED: { count: 60, seconds: 60 },
  ENROLL_IP: { count: 10, seconds: 60 },
} as const satisfies Record<string, Limit>

export type Limit = { count: number; seconds: number }
export type LimitName = keyof typeof defaultLimits
export type Limits = Record<LimitName, Limit | undefined>
