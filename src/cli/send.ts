import {
  ApiError,
  type Client,
  type ClientOptions,
  type Credentials,
  createClient,
  type Exchange,
} from '../core/client.ts'
import { CliError, exits } from './exit.ts'
import { alone } from './lock.ts'
import { type Settings, sameAddress } from './settings.ts'
import { type Place, readSession, type Session, writeSession } from './store.ts'
import { nodeTransport } from './transport.ts'

/** Seconds before its end at which an access token is renewed. */
const margin = 30

/** An access token given by the caller instead of a stored session. */
export type Token = { source: string; read(): Promise<string> }

export type SendOptions = {
  settings: Settings
  version: string
  attended: boolean
  token: Token | undefined
  /** Of SVC_API_KEY, where no token goes before it. */
  apiKey: string | undefined
}

/** A client without credentials, for signing in. */
export const strangerClient = (options: SendOptions): Client => createClient(clientOptions(options))

/**
 * A client that signs its requests with the given token, the API key or the stored session, and keeps the
 * session fresh.
 */
export function clientFor(options: SendOptions): Client {
  const { settings, attended, token, apiKey } = options
  const credentials = token
    ? tokenCredentials(token)
    : apiKey !== undefined
      ? keyCredentials(apiKey)
      : sessionCredentials(settings, attended, strangerClient(options))
  return createClient({ ...clientOptions(options), credentials })
}

/** Everything but who is calling. */
export const clientOptions = ({ settings, version }: SendOptions): ClientOptions => ({
  url: settings.url.value,
  timeout: settings.timeout.value,
  transport: nodeTransport({ caFile: settings.caFile.value }),
  headers: { 'x-service-client': 'cli', 'user-agent': `svc/${version}` },
  ...(settings.debug.value && { onExchange: logExchange }),
})

function logExchange({ method, url, attempt, ms, status, failure }: Exchange): void {
  const again = attempt > 1 ? ` (try ${attempt})` : ''
  process.stderr.write(`svc: ${method} ${url} → ${status ?? failure} in ${ms} ms${again}\n`)
}

function tokenCredentials({ source, read }: Token): Credentials {
  return {
    headers: async () => ({ authorization: `Bearer ${(await read()).trim()}` }),
    renew: async (failure) => {
      throw new CliError(failure.message, {
        exit: exits.authentication,
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
      // The service looked for a person: this is no route for keys.
      const forUsers = failure.code === 'unauthenticated'
      const hint = forUsers
        ? 'SVC_API_KEY is set; without it (env -u SVC_API_KEY svc …) your own sign-in is used'
        : 'the key of SVC_API_KEY was refused; svc keys shows which there are'
      throw new CliError(forUsers ? 'This takes a signed-in user, not an API key' : failure.message, {
        exit: exits.authentication,
        code: failure.code,
        hint,
        cause: failure,
      })
    },
  }
}

/** Where the session of the context in use is kept. */
export function placeOf(settings: Settings, attended: boolean): Place | undefined {
  const { active } = settings
  const kind = active?.context.store
  return active && kind ? { kind, context: active.name, attended } : undefined
}

const isFresh = (session: Session): boolean => session.expiresAt - Date.now() > margin * 1000

function sessionCredentials(settings: Settings, attended: boolean, stranger: Client): Credentials {
  const place = placeOf(settings, attended)
  let session: Session | undefined

  async function current(): Promise<Session> {
    session ??= place && (await readSession(place))
    if (!place || !session || !sameAddress(session.url, settings.url.value)) {
      throw new CliError(`Not signed in to ${settings.url.value}`, {
        exit: exits.authentication,
        code: 'unauthenticated',
        hint: 'svc login',
      })
    }
    if (session.again && session.expiresAt <= Date.now()) throw isOver(session.again)
    if (!isFresh(session) && session.refreshToken) session = await renewed(place, session, stranger)
    return session
  }

  return {
    headers: async () => ({ authorization: `Bearer ${(await current()).accessToken}` }),
    renew: async (failure) => {
      if (session?.again) throw isOver(session.again, failure)
      if (!place || !session?.refreshToken) return false
      session = await renewed(place, session, stranger)
      return true
    },
  }
}

const isOver = (again: string, cause?: ApiError): CliError =>
  new CliError('The access of this job is over: it cannot be renewed', {
    exit: exits.authentication,
    code: cause?.code ?? 'invalid_token',
    hint: again,
    cause,
  })

/**
 * Spends the refresh token, alone among the processes of this machine: a spent token that is used again ends
 * every session of its family, so whoever waited for the lock first looks for what the other one stored.
 */
const renewed = (place: Place, stale: Session, stranger: Client): Promise<Session> =>
  alone(place.context, async () => {
    const stored = await readSession(place)
    if (stored && stored.accessToken !== stale.accessToken && isFresh(stored)) return stored
    const { refreshToken } = stored ?? stale
    if (!refreshToken) return stale
    const { tokens } = await refresh(stranger, refreshToken)
    const session = sessionOf(stale.url, { refreshToken, ...tokens })
    await writeSession(place, session).catch((error: Error) => {
      process.stderr.write(
        `svc: the renewed session could not be kept (${error.message}): sign in again next time\n`,
      )
    })
    return session
  })

async function refresh(stranger: Client, refreshToken: string) {
  const { auth } = await import('../identity/contract.ts')
  try {
    return await stranger.call(auth.refresh, { body: { refreshToken } })
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error
    throw new CliError('The session is over', {
      exit: exits.authentication,
      code: error.code,
      hint: 'svc login',
      cause: error,
    })
  }
}

export function sessionOf(
  url: string,
  tokens: { accessToken: string; refreshToken?: string | undefined; expiresInSeconds: number },
): Session {
  return {
    url,
    accessToken: tokens.accessToken,
    ...(tokens.refreshToken && { refreshToken: tokens.refreshToken }),
    expiresAt: Date.now() + tokens.expiresInSeconds * 1000,
  }
}
