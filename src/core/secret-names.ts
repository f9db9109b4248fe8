/* The secrets of an installation: the setting of each, and its entry in the secrets.json of a data directory. */

export type SecretEntry =
  | 'jwt'
  | 'encryption'
  | 'enrollmentPepper'
  | 'recoveryPepper'
  | 'auditSigning'
  | 'metricsToken'

/** Each installation has its own; `svc secrets` changes them. */
export const secretEntryOf = {
  JWT_SECRET: 'jwt',
  APP_ENCRYPTION_KEY: 'encryption',
  ENROLLMENT_KEY_PEPPER: 'enrollmentPepper',
  MFA_RECOVERY_CODE_PEPPER: 'recoveryPepper',
  AUDIT_SIGNING_KEY: 'auditSigning',
  METRICS_TOKEN: 'metricsToken',
} as const satisfies Record<string, SecretEntry>

export type SecretName = keyof typeof secretEntryOf
export const secretNames = Object.keys(secretEntryOf) as SecretName[]
