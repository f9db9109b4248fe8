import {
  ApiError,
  type Client,
  type ClientOptions,
  type Credentials,
  createClient,
  type HttpExchange,
  type Transport,
} from '../core/client.ts'
import { type CredentialLocation, readSession, type StoredSession, writeSession } from './credential-store.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { withLock } from './lock.ts'
import { noteServiceVersion } from './service-version.ts'
import { isSameUrl, type Settings } from './settings.ts'
import { printNote } from './stderr-notes.ts'
import { nodeTransport } from './transport.ts'

/** Seconds before its end at which an access token is renewed. */
const renewMarginSeconds = 30

/** An access token given by the caller instead of a stored session. */
type TokenSource = { source: string; read(): Promise<string> }

export type ApiClientOptions = {
  settings: Settings
  version: string
  interactive: boolean
  token: TokenSource | undefined
  /** From SVC_API_KEY, unless a token takes precedence. */
  apiKey: string | undefined
  /** Nobody sees what it says: it waits for no rate limit. */
  silent?: true
}

/** A client without credentials, for signing in. */
export const anonymousClient = (options: ApiClientOptions): Client => createClient(baseOptions(options))

/**
 * A client that signs its requests with the given token, the API key or the stored session, and keeps the
 * session fresh.
 */
export function authenticatedClient(options: ApiClientOptions): Client {
  const { settings, interactive, token, apiKey } = options
  const credentials = token
    ? tokenCredentials(token)
    : apiKey !== undefined
      ? keyCredentials(apiKey)
      : sessionCredentials(settings, interactive, anonymousClient(options))
  const rateLimit = { patience: patienceOf(settings), onWait: sayWait }
  return createClient({ ...baseOptions(options), credentials, ...(!options.silent && { rateLimit }) })
}

/** For screens, which wait by themselves and say so where they have room for it. */
export const pollingClient = (options: ApiClientOptions): Client =>
  authenticatedClient({ ...options, silent: true })

/** The windows of the usual limits are a minute: a loop of commands goes on after each, unless its caller set a time. */
const usualPatienceMs = 120_000
const patienceOf = ({ timeout }: Settings): number =>
  timeout.from === 'default' ? usualPatienceMs : timeout.value

const sayWait = (seconds: number): void => printNote(`Rate limited: continuing in ${seconds} s`)

/** All options except the credentials. */
export const baseOptions = ({ settings, version }: ApiClientOptions): ClientOptions => ({
  url: settings.url.value,
  timeout: settings.timeout.value,
  transport: notingVersion(settings, nodeTransport({ caFile: settings.caFile.value })),
  headers: { 'x-service-client': 'cli', 'user-agent': `svc/${version}` },
  ...(settings.debug.value && { onExchange: logExchange }),
})

const notingVersion =
  (settings: Settings, send: Transport): Transport =>
  async (request) => {
    const reply = await send(request)
    noteServiceVersion(settings, reply.headers)
    return reply
  }

function logExchange({ method, url, attempt, ms, status, failure }: HttpExchange): void {
  const again = attempt > 1 ? ` (try ${attempt})` : ''
  process.stderr.write(`svc: ${method} ${url} → ${status ?? failure} in ${ms} ms${again}\n`)
}

function tokenCredentials({ source, read }: TokenSource): Credentials {
  return {
    headers: async () => ({ authorization: `Bearer ${(await read()).trim()}` }),
    renew: async (failure) => {
      throw new CliError(failure.message, {
        exit: exitCodes.authentication,
        code: failure.code,
        hint: `the token of ${source} was refused; without it your own sign-in is used`,
        cause: failure,
      })
    },
  }
}

function keyCredentials(apiKey: string): Credentials {
  return {
    headers: async () => ({ 'x-api-key': apiKey }),
    renew: async (failure) => {
      // The route requires a user and accepts no API keys.
      const forUsers = failure.code === 'unauthenticated'
      const hint = forUsers
        ? 'SVC_API_KEY is set; without it (env -u SVC_API_KEY svc …) your own sign-in is used'
        : 'the key of SVC_API_KEY was refused; svc keys lists the valid ones'
      throw new CliError(forUsers ? 'This requires a signed-in user, not an API key' : failure.message, {
        exit: exitCodes.authentication,
        code: failure.code,
        hint,
        cause: failure,
      })
    },
  }
}

/** Where the session of the current context is stored. */
export function credentialLocation(settings: Settings, interactive: boolean): CredentialLocation | undefined {
  const { active } = settings
  const kind = active?.context.store
  return active && kind ? { kind, context: active.name, interactive } : undefined
}

export const isFresh = (session: StoredSession): boolean =>
  session.expiresAt - Date.now() > renewMarginSeconds * 1000

function sessionCredentials(settings: Settings, interactive: boolean, anonymous: Client): Credentials {
  const place = credentialLocation(settings, interactive)
  let session: StoredSession | undefined

  async function current(): Promise<StoredSession> {
    session ??= place && (await readSession(place))
    if (!place || !session || !isSameUrl(session.url, settings.url.value)) {
      throw new CliError(`Not signed in to ${settings.url.value}`, {
        exit: exitCodes.authentication,
        code: 'unauthenticated',
        hint: settings.url.from === 'flag' ? `svc login --url ${settings.url.value}` : 'svc login',
      })
    }
    if (session.again && session.expiresAt <= Date.now()) throw sessionExpired(session.again)
    if (!isFresh(session) && session.refreshToken) session = await renewSession(place, session, anonymous)
    return session
  }

  return {
    headers: async () => ({ authorization: `Bearer ${(await current()).accessToken}` }),
    renew: async (failure) => {
      if (session?.again) throw sessionExpired(session.again, failure)
      if (!place || !session?.refreshToken) return false
      session = await renewSession(place, session, anonymous)
      return true
    },
  }
}

const sessionExpired = (again: string, cause?: ApiError): CliError =>
  new CliError('The access token of this job has expired and cannot be renewed', {
    exit: exitCodes.authentication,
    code: cause?.code ?? 'invalid_token',
    hint: again,
    cause,
  })

/**
 * Uses the refresh token under a lock between processes of this machine: a token that is used twice revokes
 * every session of its family, so a process that waited for the lock first reads what the other one stored.
 */
const renewSession = (
  place: CredentialLocation,
  stale: StoredSession,
  anonymous: Client,
): Promise<StoredSession> =>
  withLock(place.context, async () => {
    const stored = await readSession(place)
    if (stored && stored.accessToken !== stale.accessToken && isFresh(stored)) return stored
    const { refreshToken } = stored ?? stale
    if (!refreshToken) return stale
    const { tokens } = await refresh(anonymous, refreshToken)
    const session = toStoredSession(stale.url, { refreshToken, ...tokens })
    await writeSession(place, session).catch((error: Error) => {
      process.stderr.write(
        `svc: the renewed session could not be stored (${error.message}): sign in again next time\n`,
      )
    })
    return session
  })

async function refresh(anonymous: Client, refreshToken: string) {
  const { auth } = await import('../identity/contract.ts')
  try {
    return await anonymous.call(auth.refresh, { body: { refreshToken } })
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error
    throw new CliError('The session is over', {
      exit: exitCodes.authentication,
      code: error.code,
      hint: 'svc login',
      cause: error,
    })
  }
}

export function toStoredSession(
  url: string,
  tokens: { accessToken: string; refreshToken?: string | undefined; expiresInSeconds: number },
): StoredSession {
  return {
    url,
    accessToken: tokens.accessToken,
    ...(tokens.refreshToken && { refreshToken: tokens.refreshToken }),
    expiresAt: Date.now() + tokens.expiresInSeconds * 1000,
  }
}
