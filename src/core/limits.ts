/**
 * Rate limits as sliding windows: most events in so many seconds. Each can
 * be set with `RATE_LIMIT_<NAME>=<count>/<seconds>` or `off`.
 */
export const defaultLimits = {
  /** Every request, by client address, before authentication. */
  IP: { count: 600, seconds: 60 },
  /** Every authenticated request, by user. */
  BEARER: { count: 300, seconds: 60 },
  /** Agent requests, by agent. */
  AGENT: { count: 120, seconds: 60 },
  /** Bytes of bodies, inflated, by agent, key, user or workload; of who is not signed in, by network. */
  BODY_BYTES: { count: 67_108_864, seconds: 60 },
  /** Tokens and updates: what an agent may change of itself, by device. */
  AGENT_CHANGES: { count: 60, seconds: 3600 },
  /** Entries of the audit log that are not about such a change, by device: more of them are told of in one. */
  AGENT_AUDIT: { count: 60, seconds: 3600 },
  /** Events of what an agent says of its device that is another than before, by device: more of them are told in one. */
  AGENT_EVENTS: { count: 60, seconds: 3600 },
  /** Entries of the machine's own logs, by device. */
  EVENT_LOGS: { count: 12_000, seconds: 3600 },
  /** Bytes of logs as they are kept, by device. */
  LOG_BYTES: { count: 67_108_864, seconds: 3600 },
  /** Sign-ins begun at identity providers, by client address, and by address and organization. */
  SSO_IP: { count: 30, seconds: 300 },
  SSO_ORG: { count: 10, seconds: 300 },
  /** Those that come back from one, and codes exchanged, by client address. */
  SSO_RETURN: { count: 60, seconds: 300 },
  LOGIN_IP: { count: 10, seconds: 300 },
  /** By client address and e-mail. */
  LOGIN_ACCOUNT: { count: 5, seconds: 300 },
  /**
   * Wrong passwords that stop an account from one network, for as long as they are counted; and those from all networks
   * together, after which a stranger needs a proof besides the password. In the database, for all replicas.
   */
  WRONG_PASSWORDS_NETWORK: { count: 5, seconds: 900 },
  WRONG_PASSWORDS_ACCOUNT: { count: 50, seconds: 3600 },
  /** Codes tried, by user. */
  MFA: { count: 5, seconds: 300 },
  /** Invitations looked at, and accepted, by client address. */
  INVITE_PREVIEW: { count: 30, seconds: 600 },
  INVITE_ACCEPT: { count: 10, seconds: 3600 },
  /** Invitations sent, also again: to one address by one tenant, by one inviter, and by one tenant. */
  INVITE_ADDRESS: { count: 5, seconds: 3600 },
  INVITE_INVITER: { count: 100, seconds: 3600 },
  INVITE_TENANT: { count: 500, seconds: 3600 },
  /** Letters that anybody can have sent to an address, whoever has it: of each kind. */
  LETTER: { count: 5, seconds: 3600 },
  /** Changes of how somebody signs in, of which a letter tells them: by the account, and by administrator. */
  NOTICE: { count: 10, seconds: 3600 },
  /** Passwords tried by someone who is signed in, by user. */
  PASSWORD: { count: 5, seconds: 300 },
  /** Links asked for, by client address. */
  FORGOT: { count: 3, seconds: 3600 },
  REGISTER: { count: 5, seconds: 3600 },
  REGISTER_PARTNER: { count: 3, seconds: 3600 },
  /** Links of registrations tried, by client address. */
  VERIFY_EMAIL: { count: 10, seconds: 300 },
  /** Codes sent for one sign-in, by its tempToken. */
  SMS: { count: 3, seconds: 300 },
  /** Codes sent for sign-ins, by phone number. */
  SMS_PHONE: { count: 5, seconds: 900 },
  /** Codes sent to prove a phone number, by that number. */
  PHONE: { count: 3, seconds: 3600 },
  /** Tokens of workloads presented, by client address: a CI system has many jobs behind one. */
  FEDERATED: { count: 60, seconds: 60 },
  ENROLL_IP: { count: 10, seconds: 60 },
} as const satisfies Record<string, Limit>

export type Limit = { count: number; seconds: number }
export type LimitName = keyof typeof defaultLimits
export type Limits = Record<LimitName, Limit | undefined>
