import { ApiError, createClient } from '../core/client.ts'
import { auth } from '../identity/contract.ts'
import { authenticatedClient, baseOptions, credentialLocation, toStoredSession } from './api-client.ts'
import type { CommandContext } from './base.ts'
import { updateConfig } from './config-file.ts'
import {
  type CredentialLocation,
  describeLocation,
  readSession,
  removeSession,
  writeSession,
} from './credential-store.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { withLock } from './lock.ts'
import { fetchMe, notSignedIn, toIdentity } from './login.ts'
import { findMembership } from './memberships.ts'
import { printNote } from './print.ts'

/** The policy of the CI job that is signed in. */
function signedInWorkload({ settings, clientOptions: { token, apiKey } }: CommandContext) {
  return token || apiKey !== undefined ? undefined : settings.active?.context.identity?.workload
}

/** Only users have a profile. Whose a given token is, the service knows. */
export async function identityEntry(run: CommandContext): Promise<typeof auth.caller | typeof auth.me> {
  const { token, apiKey } = run.clientOptions
  if (!token) return apiKey === undefined && !signedInWorkload(run) ? auth.me : auth.caller
  return (await run.client.call(auth.caller)).kind === 'user' ? auth.me : auth.caller
}

/** `3 h`: a value of JSON, and so in this form for good. Everywhere else times are those of `relativeTime`. */
function formatAge(instant: string): string {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(instant)) / 1000))
  const units = [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
  ] as const
  const [unit, size] = units.find(([, size]) => seconds >= size) ?? ['s', 1]
  return `${Math.floor(seconds / size)} ${unit}`
}

/** The sign-in state of the current context. */
export async function status(run: CommandContext) {
  const { settings } = run
  const workload = signedInWorkload(run)
  if (workload) return workloadStatus(run, workload)
  if (run.clientOptions.apiKey !== undefined) return keyStatus(run)
  const me = await run.client.call(auth.me)
  const place = credentialLocation(settings, run.interactive)
  const { token } = run.clientOptions
  const stored = token || !place ? undefined : await readSession(place)
  return {
    url: settings.url.value,
    context: settings.active?.name ?? null,
    user: { id: me.user.id, email: me.user.email, name: me.user.name },
    scope: me.scope,
    partnerId: me.partnerId,
    orgId: me.orgId,
    role: me.role?.name ?? null,
    mfa: {
      enabled: me.user.mfaEnabled,
      method: me.user.mfaMethod,
      verified: me.mfaVerified,
      verifiedAt: me.mfaVerifiedAt ?? null,
      age: me.mfaVerifiedAt ? formatAge(me.mfaVerifiedAt) : null,
    },
    accessTokenExpiresAt: stored ? new Date(stored.expiresAt).toISOString() : null,
    renewedAutomatically: stored?.refreshToken !== undefined,
    credential: token ? `the token of ${token.source}` : place ? describeLocation(place) : null,
  }
}

async function keyStatus({ client, settings }: CommandContext) {
  const { id, name, scope, orgId, permissions } = await client.call(auth.caller)
  const [url, context] = [settings.url.value, settings.active?.name ?? null]
  return { url, context, apiKey: { id, name }, scope, orgId, permissions, credential: 'SVC_API_KEY' }
}

/** The service has no profile of a CI job: its state is what the sign-in stored. */
async function workloadStatus(
  { settings, interactive }: CommandContext,
  policy: { id: string; name: string },
) {
  const place = credentialLocation(settings, interactive)
  const stored = place && (await readSession(place))
  if (!place || !stored) throw notSignedIn(settings.url.value)
  return {
    url: settings.url.value,
    context: settings.active?.name ?? null,
    policy,
    scope: 'organization',
    orgId: settings.active?.context.identity?.orgId ?? null,
    accessTokenExpiresAt: new Date(stored.expiresAt).toISOString(),
    renewedAutomatically: false,
    credential: describeLocation(place),
  }
}

/** Revokes the session at the service, or every one of the account, removes the stored one, and verifies both. */
export async function logout(run: CommandContext, everywhere: boolean) {
  const { settings, interactive } = run
  // The session of the person is meant, even with an API key.
  const client =
    run.clientOptions.apiKey === undefined
      ? run.client
      : authenticatedClient({ ...run.clientOptions, apiKey: undefined })
  const { token } = run.clientOptions
  if (token) {
    await client.call(auth.logout, { body: { everywhere } })
    return { signedOut: true, revoked: await isRefused(run, await token.read()), removed: false }
  }
  const place = credentialLocation(settings, interactive)
  const stored = place && (await readSession(place))
  if (!place || !stored) return { signedOut: false, revoked: false, removed: false }
  // The access token of a job expires within minutes.
  if (stored.again) {
    await removeStored(place)
    return { signedOut: true, revoked: false, removed: true }
  }
  const failure = await client.call(auth.logout, { body: { everywhere } }).then(
    () => undefined,
    (error: unknown) => error,
  )
  const last = (await readSession(place)) ?? stored
  await removeStored(place)
  // An expired session needs no revocation.
  if (failure !== undefined && !isOver(failure)) {
    throw new CliError(
      `The session was removed here, but the service did not revoke it: ${(failure as Error).message}`,
      {
        exit: failure instanceof ApiError ? exitCodes.failure : exitCodes.unreachable,
        code: 'not_revoked',
        hint: 'it expires within 7 days; svc login and then svc logout --everywhere revoke every session',
        cause: failure,
      },
    )
  }
  if (failure !== undefined && everywhere) {
    throw new CliError('The session was removed here. It was over, so the others were not revoked', {
      exit: exitCodes.authentication,
      code: 'not_revoked',
      hint: 'svc login and then svc logout --everywhere revoke every session',
    })
  }
  if (!(await isRefused(run, last.accessToken))) {
    throw new CliError('The session was removed here, but the service still accepts it', {
      code: 'not_revoked',
    })
  }
  return { signedOut: true, revoked: true, removed: true }
}

async function removeStored(place: CredentialLocation): Promise<void> {
  const { forgetNames } = await import('./name-cache.ts')
  forgetNames()
  await withLock(place.context, () => removeSession(place))
  await updateConfig((profile) => {
    const context = profile.contexts[place.context]
    if (context) delete context.identity
  })
}

const isOver = (failure: unknown): boolean =>
  (failure instanceof ApiError && failure.status === 401) ||
  (failure instanceof CliError && failure.exit === exitCodes.authentication)

async function isRefused(run: CommandContext, token: string): Promise<boolean> {
  const headers = async () => ({ authorization: `Bearer ${token.trim()}` })
  try {
    await createClient({ ...baseOptions(run.clientOptions), credentials: { headers } }).call(auth.me)
    return false
  } catch (error) {
    return error instanceof ApiError && error.status === 401
  }
}

/** Switches to the membership of an id, slug or name, and updates the stored session. */
export async function switchMembership(run: CommandContext, name: string | undefined) {
  const me = await run.client.call(auth.me)
  const body = name === undefined ? {} : findMembership(me.memberships, name)
  const { tokens } = await run.client.call(auth.switch, { body })
  if (!tokens) throw new CliError('The service returned no session')
  const now = await fetchMe(run, tokens)
  const kept = await storeTokens(run, tokens)
  const place = credentialLocation(run.settings, run.interactive)
  if (kept && place) {
    await updateConfig((profile) => {
      const context = profile.contexts[place.context]
      if (context) context.identity = toIdentity(now)
    })
  } else printNote('The new session was not stored, and the present token was revoked')
  const { scope, orgId, partnerId } = now
  const id = orgId ?? partnerId
  const of = now.memberships.find((one) => one.id === id)?.name
  return { scope, orgId, partnerId, of: of === undefined ? '' : ` of ${of}` }
}

/** Removes the session of the context, which the service has revoked. */
export async function clearSession({
  settings,
  interactive,
  clientOptions: send,
}: CommandContext): Promise<void> {
  const place = credentialLocation(settings, interactive)
  if (place && !send.token) await withLock(place.context, () => removeSession(place))
}

/** Replaces the tokens of the stored session; false without a stored session. */
export async function storeTokens(
  { settings, interactive, clientOptions: send }: CommandContext,
  tokens: { accessToken: string; refreshToken?: string | undefined; expiresInSeconds: number },
): Promise<boolean> {
  const place = credentialLocation(settings, interactive)
  if (!place || send.token || send.apiKey !== undefined) return false
  await withLock(place.context, () => writeSession(place, toStoredSession(settings.url.value, tokens)))
  return true
}
