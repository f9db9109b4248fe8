/**
 * How many records of a kind people may create: for each organization or partner, unless stated otherwise. Each can
 * be set with `QUOTA_<NAME>=<count>`.
 */
export const defaultQuotas = {
  /** Of the whole service, with deleted ones: their audit log is kept. */
  PARTNERS: 100_000,
  /** Of them, those that registered themselves and wait for approval. */
  PENDING_PARTNERS: 1000,
  /** Of a partner, with deleted ones: their audit log is kept. */
  ORGANIZATIONS: 50_000,
  SITES: 10_000,
  /** People, whether or not they have accepted their invitation. */
  MEMBERS: 10_000,
  ROLES: 1000,
  /** Revoked and expired keys make room. */
  API_KEYS: 1000,
  /** Keys that expired three months ago make room. */
  ENROLLMENT_KEYS: 10_000,
  /** With decommissioned ones, until they are deleted. */
  DEVICES: 100_000,
  FILTERS: 1000,
  DEVICE_GROUPS: 1000,
  /** Deleted scripts make room. */
  SCRIPTS: 1000,
  /** Resolved alerts make room. */
  ALERTS: 50_000,
  WEBHOOKS: 100,
  SSO_PROVIDERS: 100,
  TRUST_POLICIES: 1000,
} as const satisfies Record<string, number>

export type QuotaName = keyof typeof defaultQuotas
export type Quotas = Record<QuotaName, number>

/** Whose records are counted: a null or missing id is not part of the owner. */
export type QuotaOwner = { orgId?: string | null | undefined; partnerId?: string | null | undefined }
