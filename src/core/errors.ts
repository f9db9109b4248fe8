import { truncateStorable } from './text.ts'

/**
 * Every failure the product can name: code → HTTP status, CLI exit code and title. A code is API: it is never
 * renamed. Exit codes follow `svc help exit-codes`.
 */
export const errors = {
  invalid_request: { status: 400, exit: 2, title: 'The request is not valid' },
  malformed_json: { status: 400, exit: 2, title: 'The body is not valid JSON' },
  role_in_use: { status: 400, exit: 6, title: 'Role is in use' },
  already_decommissioned: { status: 400, exit: 6, title: 'Device is already decommissioned' },
  device_out_of_use: { status: 400, exit: 6, title: 'Cannot send commands to a decommissioned device' },
  not_decommissioned: { status: 400, exit: 6, title: 'Device is not decommissioned' },
  oidc_discovery_failed: { status: 400, exit: 1, title: 'OIDC discovery failed' },
  unauthenticated: { status: 401, exit: 4, title: 'Sign-in required' },
  invalid_credentials: { status: 401, exit: 4, title: 'Invalid email or password' },
  invalid_token: { status: 401, exit: 4, title: 'Invalid or expired token' },
  invalid_refresh_token: { status: 401, exit: 4, title: 'Invalid refresh token' },
  refresh_raced: { status: 401, exit: 4, title: 'Refresh already in progress' },
  sso_failed: { status: 401, exit: 4, title: 'The sign-in failed' },
  invalid_mfa_code: { status: 401, exit: 4, title: 'Invalid MFA code' },
  invalid_verification_code: { status: 401, exit: 4, title: 'Invalid verification code' },
  invalid_mfa_session: { status: 401, exit: 4, title: 'Invalid or expired MFA session' },
  invalid_reset_token: { status: 400, exit: 2, title: 'Invalid or expired reset token' },
  authorization_pending: { status: 400, exit: 4, title: 'Nobody has approved this sign-in yet' },
  invalid_device_code: { status: 400, exit: 4, title: 'Invalid or expired device code' },
  invalid_user_code: { status: 400, exit: 2, title: 'Invalid or expired code of a terminal' },
  invalid_exchange_code: { status: 400, exit: 4, title: 'Invalid or expired token exchange code' },
  invalid_verification_link: { status: 400, exit: 2, title: 'Invalid or expired verification link' },
  wrong_password: { status: 401, exit: 4, title: 'Current password is incorrect' },
  invalid_agent_credentials: { status: 401, exit: 4, title: 'Invalid agent credentials' },
  re_enrollment_required: { status: 401, exit: 4, title: 'The agent has to enroll again' },
  invalid_api_key: { status: 401, exit: 4, title: 'Invalid API key' },
  api_key_revoked: { status: 401, exit: 4, title: 'API key is revoked' },
  api_key_expired: { status: 401, exit: 4, title: 'API key is expired' },
  federated_token_refused: { status: 401, exit: 4, title: 'The token was not accepted' },
  enrollment_key_not_found: { status: 401, exit: 4, title: 'Enrollment key not recognized' },
  enrollment_key_expired: { status: 401, exit: 4, title: 'Enrollment key has expired' },
  enrollment_key_exhausted: {
    status: 401,
    exit: 4,
    title: 'Enrollment key has reached its maximum usage count',
  },
  forbidden: { status: 403, exit: 5, title: 'Permission denied' },
  scope_not_allowed: { status: 403, exit: 5, title: 'Insufficient permissions' },
  partner_access_limited: { status: 403, exit: 5, title: 'Full partner organization access required' },
  tenant_required: { status: 403, exit: 5, title: 'Partner or organization context required' },
  system_role: { status: 403, exit: 5, title: 'Cannot modify system roles' },
  own_role: { status: 403, exit: 5, title: 'You cannot change the permissions of your own role' },
  api_key_scope: { status: 403, exit: 5, title: 'API key does not have required permissions' },
  key_shape_exceeded: {
    status: 403,
    exit: 5,
    title: 'The trust policy does not allow such an enrollment key',
  },
  mfa_required: { status: 403, exit: 5, title: 'MFA required' },
  mfa_enforced: {
    status: 403,
    exit: 5,
    title: 'Your organization requires MFA. Contact your admin to change this policy.',
  },
  sms_not_allowed: { status: 403, exit: 5, title: 'Your organization does not allow SMS MFA' },
  csrf: { status: 403, exit: 5, title: 'Cross-site request blocked' },
  partner_mismatch: { status: 403, exit: 5, title: 'Access to this partner denied' },
  org_access_denied: { status: 403, exit: 5, title: 'Access to this organization denied' },
  site_access_denied: { status: 403, exit: 5, title: 'Access to this site denied' },
  sso_required: {
    status: 403,
    exit: 5,
    title: 'Your organization requires SSO',
  },
  access_denied: { status: 403, exit: 5, title: 'The sign-in was denied' },
  account_inactive: { status: 403, exit: 5, title: 'Account is not active' },
  enrollment_secret_required: { status: 403, exit: 5, title: 'Enrollment secret required' },
  invalid_enrollment_secret: { status: 403, exit: 5, title: 'Invalid enrollment secret' },
  reauthentication_required: {
    status: 403,
    exit: 5,
    title: 'Authenticate again: send your password, or sign in again',
  },
  email_unproved: { status: 403, exit: 5, title: 'Verify your e-mail address first: reset your password' },
  invitation_pending: { status: 403, exit: 5, title: 'Your invitation is not accepted yet' },
  tenant_pending: { status: 403, exit: 5, title: 'Your registration is not approved yet' },
  tenant_inactive: { status: 403, exit: 5, title: 'Tenant is not active' },
  device_decommissioned: { status: 403, exit: 5, title: 'Device has been decommissioned' },
  device_quarantined: { status: 403, exit: 5, title: 'Device is quarantined pending admin approval' },
  agent_role_required: { status: 403, exit: 5, title: 'Only the agent may do this, not its watchdog' },
  command_role_mismatch: { status: 403, exit: 5, title: 'Command role mismatch' },
  device_limit_reached: { status: 403, exit: 5, title: 'Device limit reached' },
  quota_exceeded: { status: 403, exit: 5, title: 'Quota exceeded' },
  organization_limit_reached: { status: 403, exit: 5, title: 'Organization limit reached' },
  not_found: { status: 404, exit: 3, title: 'Not found' },
  invite_not_found: { status: 404, exit: 3, title: 'Invalid or expired invite token' },
  method_not_allowed: { status: 405, exit: 2, title: 'Method not allowed' },
  conflict: { status: 409, exit: 6, title: 'Conflict' },
  slug_taken: { status: 409, exit: 6, title: 'That identifier is already in use' },
  site_in_use: { status: 409, exit: 6, title: 'Site is still in use' },
  user_exists: { status: 409, exit: 6, title: 'User already exists in this scope' },
  last_administrator: { status: 409, exit: 6, title: 'This would leave no administrator' },
  audit_history_changed: {
    status: 409,
    exit: 1,
    title: 'The audit log no longer contains the entries that were signed before',
  },
  device_offline: { status: 409, exit: 6, title: 'Device is offline, cannot execute command' },
  device_unreachable: {
    status: 409,
    exit: 6,
    title: 'Device is not currently reachable over the live connection. Please try again in a moment.',
  },
  rotation_stale_current: { status: 409, exit: 6, title: 'This token was replaced: use the new one' },
  agent_challenge_invalid: {
    status: 401,
    exit: 4,
    title: 'This challenge does not count any more: request another',
  },
  agent_key_conflict: { status: 409, exit: 6, title: 'This device has another key already' },
  rotation_conflict: { status: 409, exit: 6, title: 'A later rotation replaced this one' },
  rotation_unresolvable: {
    status: 409,
    exit: 6,
    title: 'The token was changed without a rotation: start over with the current token',
  },
  pending_token_required: { status: 409, exit: 6, title: 'Confirm the rotation with the new token' },
  pending_rotation_expired: {
    status: 409,
    exit: 6,
    title: 'The new token was not confirmed in time: continue with the old one, and rotate again',
  },
  pending_rotation_unconfirmed: {
    status: 409,
    exit: 6,
    title: 'This token is not confirmed yet: confirm it first',
  },
  release_untrusted: { status: 409, exit: 6, title: 'Release manifest is not trusted' },
  release_changed: { status: 409, exit: 6, title: 'The version is registered with another manifest' },
  release_in_use: { status: 409, exit: 6, title: 'The version is still offered to agents' },
  rollback_needed: { status: 409, exit: 6, title: 'An older version can only be offered by a roll-back' },
  below_minimum_version: { status: 409, exit: 6, title: 'The version is below the lowest one allowed' },
  rollout_in_progress: { status: 409, exit: 6, title: 'A rollout is in progress' },
  idempotency_mismatch: { status: 409, exit: 6, title: 'Idempotency-Key was used with another request' },
  idempotency_in_progress: {
    status: 409,
    exit: 8,
    title: 'A request with this Idempotency-Key is still in progress',
  },
  request_timeout: { status: 408, exit: 8, title: 'The request took too long to arrive' },
  invite_accepted: { status: 410, exit: 6, title: 'This invite has already been accepted' },
  payload_too_large: { status: 413, exit: 2, title: 'Request body too large' },
  unsupported_media_type: { status: 415, exit: 2, title: 'Unsupported media type' },
  range_not_satisfiable: { status: 416, exit: 2, title: 'The range lies outside of the file' },
  release_refused: { status: 422, exit: 6, title: 'The release was not registered' },
  filter_too_expensive: {
    status: 422,
    exit: 2,
    title: 'The filter is too expensive to evaluate on each device',
  },
  mfa_enrollment_required: { status: 428, exit: 5, title: 'MFA enrollment required' },
  too_many_questions: { status: 429, exit: 7, title: 'Too many expensive queries at the same time' },
  rate_limited: { status: 429, exit: 7, title: 'Rate limit exceeded' },
  log_quota_exceeded: {
    status: 429,
    exit: 7,
    title: 'The log quota of this device is full: the oldest logs must expire first',
  },
  headers_too_large: { status: 431, exit: 2, title: 'Request headers too large' },
  internal: { status: 500, exit: 1, title: 'Internal Server Error' },
  sso_not_configured: {
    status: 501,
    exit: 8,
    title: 'Single sign-on needs PUBLIC_URL: identity providers redirect users back to it',
  },
  sms_not_configured: { status: 501, exit: 8, title: 'SMS service not configured' },
  releases_not_configured: {
    status: 501,
    exit: 8,
    title:
      'No source of releases is configured: set RELEASE_API_URL, or BINARY_SOURCE=local and AGENT_BINARY_DIR',
  },
  release_host_failed: { status: 502, exit: 8, title: 'The release host failed' },
  sms_unavailable: {
    status: 502,
    exit: 8,
    title: 'SMS verification service temporarily unavailable. Please try again.',
  },
  device_failed: { status: 502, exit: 1, title: 'The agent could not execute the command' },
  question_too_slow: { status: 503, exit: 8, title: 'The query took too long' },
  unavailable: { status: 503, exit: 8, title: 'Service temporarily unavailable' },
  maintenance: {
    status: 503,
    exit: 8,
    title: 'The service is in maintenance: it answers reads, and no writes',
  },
  device_timeout: { status: 504, exit: 124, title: 'Command timed out' },
} as const satisfies Record<string, { status: number; exit: number; title: string }>

export type ErrorCode = keyof typeof errors

/** One fault of the input: `path` is dotted, from the part of the request it is in (`body.name`). */
export type Fault = { path: string; message: string }

type ProblemExtras = {
  /** Sent as `details`. */
  details?: unknown
  /** Number of faults that `details` does not list; sent as `moreDetails`. */
  moreDetails?: number
  /** Seconds; sent as `retryAfter` and in the Retry-After header. */
  retryAfter?: number
  /** Where a user enrolls a factor; sent as `enrollUrl`. */
  enrollUrl?: string
  /** Where a browser in a redirect flow is sent instead. */
  location?: string
  /** What the audit log records about the refusal; never sent to the caller. */
  refusal?: Refusal
}

/** Facts about a refused caller that the pipeline cannot know. */
type Refusal = {
  /** The endpoint's action by default. */
  action?: string
  orgId?: string | null
  actorId?: string
  actorEmail?: string
  /** Set when the caller was authenticated. */
  result?: 'denied'
  details?: Record<string, unknown>
}

/** Why something is refused, with the permission that is missing. */
export function refusalText(message: string, details: unknown): string {
  const { required } = (details ?? {}) as { required?: string }
  return required === undefined ? message : `${message}: ${required}`
}

/** An expected failure. Everything else that is thrown is a bug and answers 500. */
export class Problem extends Error {
  readonly code: ErrorCode
  readonly extras: ProblemExtras

  constructor(code: ErrorCode, message: string = errors[code].title, extras: ProblemExtras = {}) {
    super(message)
    this.name = 'Problem'
    this.code = code
    this.extras = extras
  }

  get status(): number {
    return errors[this.code].status
  }
}

/**
 * Limits of a fault report: a request that is wrong everywhere gets a start, and does not get all its content
 * back.
 */
const maxFaults = 50
const maxText = 8192
const longestPath = 200
const longestMessage = 500

/**
 * 400 that names the faults, at most the first 50; `message` replaces the text where the API promises another.
 */
export function invalid(faults: readonly Fault[], message?: string): Problem {
  const reported: Fault[] = []
  let size = 0
  for (const { path, message } of faults.slice(0, maxFaults)) {
    const fault = { path: shortened(path, longestPath), message: shortened(message, longestMessage) }
    size += JSON.stringify(fault).length
    if (reported.length > 0 && size > maxText) break
    reported.push(fault)
  }
  const more = faults.length - reported.length
  const lines = reported.map((fault) => `${fault.path}: ${fault.message}`)
  if (more > 0) lines.push(`and ${more} more`)
  return new Problem('invalid_request', message ?? lines.join('; '), {
    details: reported,
    ...(more > 0 && { moreDetails: more }),
  })
}

/**
 * Runs every check, so that all faults are told at once.
 * @throws invalid_request with the faults of all checks, and at once whatever else a check throws
 */
export async function checkAll(...checks: readonly (() => void | Promise<void>)[]): Promise<void> {
  const found: Problem[] = []
  for (const check of checks) {
    try {
      await check()
    } catch (error) {
      if (!(error instanceof Problem && error.code === 'invalid_request')) throw error
      found.push(error)
    }
  }
  const [first, ...others] = found
  if (first && others.length === 0) throw first
  if (first) throw invalid(found.flatMap(({ extras }) => (extras.details ?? []) as Fault[]))
}

const shortened = (text: string, max: number): string =>
  text.length <= max ? text : `${truncateStorable(text, max - 1)}…`

/** @throws invalid_request when a change has no fields */
export function assertNotEmptyChange(change: object): void {
  const message = 'No updates provided'
  if (Object.keys(change).length === 0) throw invalid([{ path: 'body', message }], message)
}

/** A fault that the operator must fix before the service can start; the message is one line that says how. */
export class SetupError extends Error {
  override name = 'SetupError'
}

/** The body of every error reply. */
export type ErrorBody = {
  error: string
  code: string
  requestId: string
  details?: unknown
  moreDetails?: number
  retryAfter?: number
  enrollUrl?: string
}
