/** What a person's tenants require and allow as second factors. */
export type MfaPolicy = { required: boolean; smsAllowed: boolean }

/** The strictest of `settings`, as JSON text of partners and organizations. */
export function mfaPolicyOf(settings: readonly string[]): MfaPolicy {
  const policies = settings.filter((text) => text.includes('"security"')).map(securityOf)
  return {
    required: policies.some((one) => one.requireMfa === true),
    smsAllowed: !policies.some((one) => (one.allowedMfaMethods ?? one.allowedMethods)?.sms === false),
  }
}

type Methods = { sms?: unknown }
type Security = { requireMfa?: unknown; allowedMfaMethods?: Methods; allowedMethods?: Methods }

function securityOf(settings: string): Security {
  const { security } = JSON.parse(settings) as { security?: Security }
  return security ?? {}
}
