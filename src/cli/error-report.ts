import { ApiError, NetworkError, TimeoutError } from '../core/client.ts'
import { type ErrorCode, errors, type Fault, SetupError } from '../core/errors.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { relativeTime } from './times.ts'

/** A failure as a person reads it and as `--json` prints it, with the exit code of the command. */
export type ErrorReport = {
  exit: number
  error: {
    code: string
    message: string
    status: number | null
    requestId: string | null
    hint: string | null
  }
  /** Further lines for a person. */
  notes: string[]
}

/** The report of a failure, or undefined for a bug. */
export function toReport(failure: unknown): ErrorReport | undefined {
  const report = (
    exit: number,
    code: string,
    message: string,
    more: Partial<ErrorReport['error']> = {},
  ): ErrorReport => ({
    exit,
    error: { code, message, status: null, requestId: null, hint: null, ...more },
    notes: [],
  })
  if (failure instanceof CliError) {
    return report(failure.exit, failure.code, failure.message, { hint: failure.hint ?? null })
  }
  if (failure instanceof ApiError) return fromApiError(failure)
  if (failure instanceof SetupError) return report(exitCodes.failure, 'setup', failure.message)
  if (failure instanceof NetworkError) {
    const usual = failure.proxy
      ? 'check the proxy, or add the host to NO_PROXY'
      : 'is the service running there? --url, SVC_URL or `svc context use` choose another one'
    return report(exitCodes.unreachable, 'unreachable', failure.message, { hint: failure.hint ?? usual })
  }
  if (failure instanceof TimeoutError) {
    return report(exitCodes.timeout, 'timeout', failure.message, {
      hint: '--timeout 2m or SVC_TIMEOUT waits longer',
    })
  }
  // @inquirer/prompts throws this on Ctrl-C.
  if (failure instanceof Error && failure.name === 'ExitPromptError') {
    return report(exitCodes.interrupted, 'interrupted', 'Interrupted')
  }
  return undefined
}

function fromApiError(failure: ApiError): ErrorReport {
  const known = errors[failure.code as ErrorCode] as { exit: number } | undefined
  const hint = hintFor(failure)
  return {
    exit: known?.exit ?? exitOfStatus(failure.status),
    error: {
      code: failure.code,
      message: failure.message,
      status: failure.status,
      requestId: failure.requestId ?? null,
      hint: hint ?? null,
    },
    notes: notesOf(failure),
  }
}

function notesOf(failure: ApiError): string[] {
  const { moreDetails: more } = failure
  const notes = faultsOf(failure).map(({ path, message }) =>
    // Its message is complete.
    message === failure.message ? message : `${flagOf(path, flagNamesOf.get(failure))}: ${message}`,
  )
  return more > 0 ? [...notes, `and ${more} more`] : notes
}

const flagNamesOf = new WeakMap<object, FlagNames>()

/** Flags of request fields (`body.url`), where the names differ. */
export type FlagNames = ReadonlyMap<string, string>

/** Attaches the flag names of fields to a failure. */
export function withFlagNames(failure: unknown, flags: FlagNames): unknown {
  if (failure instanceof ApiError) flagNamesOf.set(failure, flags)
  return failure
}

/** `body.maxUsage` is the flag --max-usage. */
function flagOf(path: string, flags?: FlagNames): string {
  const match = /^((?:body|query)\.(\w+))(?:\.([a-z].*))?/i.exec(path)
  if (!match) return path
  const [, at = '', key = '', rest] = match
  const exact = rest === undefined ? undefined : flags?.get(`${at}.${rest}`)
  if (exact !== undefined) return `--${exact}`
  const own = flags?.get(at)
  if (own !== undefined) return `--${own}${rest === undefined ? '' : ` (${rest})`}`
  // The conditions of a filter are typed as --where (src/cli/filters.ts).
  const field = key === 'conditions' ? 'where' : key
  const name = field.replace(/(?<=.)Id$/, '').replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  return `--${name}${rest === undefined ? '' : ` (${rest})`}`
}

function faultsOf(failure: ApiError): Fault[] {
  const isFault = (one: unknown): one is Fault =>
    typeof (one as Fault | null)?.path === 'string' && typeof (one as Fault).message === 'string'
  return Array.isArray(failure.details) ? failure.details.filter(isFault) : []
}

function exitOfStatus(status: number): number {
  if (status === 401) return exitCodes.authentication
  if (status === 403 || status === 428) return exitCodes.forbidden
  if (status === 404) return exitCodes.notFound
  if (status === 409) return exitCodes.conflict
  if (status === 429) return exitCodes.rateLimited
  if (status === 502 || status === 503 || status === 504) return exitCodes.unreachable
  return status < 500 ? exitCodes.usage : exitCodes.failure
}

const hints: { [code in ErrorCode]?: string } = {
  unauthenticated: 'svc login',
  invalid_credentials:
    'after many wrong passwords the right one is refused as well: wait 15 minutes, sign in from a machine you used before, ' +
    'or set a new password with svc password forgot EMAIL and sign in from the same machine',
  invalid_token: 'svc login',
  invalid_refresh_token: 'the session has expired: svc login',
  invalid_mfa_session: 'the sign-in took too long: svc login',
  invalid_mfa_code:
    'use the current code, once; a recovery code works too. A lost factor is removed by an administrator (svc users reset-mfa EMAIL), ' +
    'that of the only system administrator on the machine of the service (svc db reset-mfa EMAIL --lost)',
  mfa_enrollment_required: 'svc mfa setup, then svc mfa enable',
  last_administrator:
    'svc users list shows who is active and who is invited; svc users resend EMAIL invites again, svc users role EMAIL --role "Org Admin" changes a role',
  user_exists: 'svc users show EMAIL shows them; svc users resend EMAIL sends the invitation again',
  scope_not_allowed:
    'this needs another membership: svc login --partner P or --org O; svc whoami shows the current one',
  tenant_required: 'name the tenant: --org ORG or --partner PARTNER',
  partner_access_limited: 'your membership is limited to some organizations: this needs orgAccess all',
  forbidden: 'svc explain METHOD PATH gives the reason; svc can-i ACTION RESOURCE checks in advance',
  api_key_scope:
    'svc keys show KEY lists its scopes, which never exceed the permissions of its creator; svc keys update KEY --scope … changes them',
  reauthentication_required: 'this needs a sign-in within the last 10 minutes: svc login, then try again',
  access_denied: 'somebody denied it in the browser; svc login --device begins again',
  email_unproved:
    'svc password forgot EMAIL sends a link for svc password reset; then svc login, and try again',
  invitation_pending: 'svc invite list shows your invitations, svc invite accept NAME accepts one',
  own_role: 'another administrator of this tenant can change it',
  system_role: 'svc roles clone creates a copy that can be changed',
  role_in_use:
    'svc roles users ROLE lists its users; svc roles list shows which roles inherit from it, svc sso show PROVIDER the default role of one',
  tenant_pending: 'a system administrator has to approve it; svc mfa setup works meanwhile',
  tenant_inactive: 'the organization or its partner is suspended',
  site_in_use: 'svc devices --site SITE, svc enroll list, svc groups and svc filters show what still uses it',
  device_unreachable: 'its agent reconnects by itself, usually within a minute; svc devices show DEVICE',
  device_failed: 'svc logs diagnostic DEVICE shows the logs of its agent',
  device_timeout: 'request less, such as with --since 1h, or try again',
  release_changed: 'publish the change as a new version',
  release_in_use: 'svc agent versions lists the versions offered to machines',
  rollback_needed: 'svc agent rollback VERSION also offers it to machines with a newer one',
  below_minimum_version: 'svc agent versions show VERSION shows the lowest version that a release allows',
  rollout_in_progress:
    'svc agent sync-release --no-promote registers a version meanwhile; svc agent rollout abort ends the rollout',
  filter_too_expensive:
    'contains, startsWith and endsWith cost next to nothing; so does a pattern without classes such as \\pL',
  too_many_questions: 'running questions finish within seconds; send one after the other',
  question_too_slow: 'limit it to one organization or site, with a smaller --limit or fewer conditions',
  slug_taken: 'choose another slug, or add --if-not-exists to use the record that has it',
}

/** Remedies for a refused token of a job, by reason. */
const tokenHints: Readonly<Record<string, string>> = {
  incomplete: 'its issuer has to set the token id (jti), the time of issue (iat) and the expiry (exp)',
  expired: 'request a new one from the CI system, right before signing in',
  too_old: 'request a new one from the CI system, right before signing in',
  not_yet_valid: 'correct the clocks: those of the CI system and of the service are more than a minute apart',
  replayed: 'each token signs in once: request a new one from the CI system',
  no_policy: 'no trust policy accepts it: svc trust test POLICY --id-token - shows an administrator why',
  ambiguous: 'several organizations trust it: name one with --org ID',
}

/** Remedies for a refused release, by reason. */
const releaseHints: Readonly<Record<string, string>> = {
  no_trusted_keys:
    'the service needs RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS: svc agent sign-release prints its value',
  signed_release_manifest_required:
    'svc agent sign-release DIR writes release-manifest.json and release-manifest.json.sig: publish both with the files',
  invalid_release_manifest_signature:
    'RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS lacks the key it was signed with, or it was not signed by you',
}

function hintFor(failure: ApiError): string | undefined {
  if (failure.code === 'mfa_required') {
    return failure.enrollUrl
      ? 'svc mfa setup, then svc mfa enable'
      : 'sign in again with a code from the authenticator: svc login --otp CODE'
  }
  if (failure.retryAfter !== undefined && (failure.status === 429 || failure.status === 503)) {
    return `try again in ${failure.retryAfter} s`
  }
  if (failure.code === 'device_offline') {
    const { lastSeenAt } = (failure.details ?? {}) as { lastSeenAt?: string | null }
    return `${lastSeenAt ? `last seen ${relativeTime(lastSeenAt, Date.now())}: ` : ''}svc devices show DEVICE has details`
  }
  const { hint, reason = '', required } = (failure.details ?? {}) as Partial<Record<string, string>>
  if (hint !== undefined) return hint
  if (['oidc_discovery_failed', 'release_host_failed', 'not_found'].includes(failure.code)) return undefined
  if (failure.code === 'release_refused') return releaseHints[reason]
  if (failure.code === 'federated_token_refused') {
    return (
      tokenHints[reason] ??
      'no policy trusts its issuer, or its signature is not of that issuer: svc trust lists trusted issuers'
    )
  }
  if (failure.code === 'invalid_request' && failure.message.includes('orgId'))
    return 'add --org, or set SVC_ORG'
  const needs = required === undefined ? '' : `this needs ${required}; `
  if (failure.code === 'api_key_scope') return `${needs}${hints.api_key_scope}`
  if (failure.code === 'forbidden' && failure.request !== undefined)
    return `${needs}svc explain ${failure.request} says why`
  return hints[failure.code as ErrorCode]
}
