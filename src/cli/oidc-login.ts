import { string } from '@oclif/core/flags'
import { isId } from '../core/ids.ts'
import { parseJson } from '../core/json.ts'
import { textOf } from '../core/transport.ts'
import { trust } from '../trust/contract.ts'
import { toStoredSession } from './api-client.ts'
import { readStdin, readTextFile } from './ask.ts'
import type { CommandContext } from './base.ts'
import { chooseStore } from './choose-credential-store.ts'
import { describeLocation } from './credential-store.ts'
import { CliError, usageError } from './exit-codes.ts'
import { sessionNotKept, storeSession, warnIfUnencrypted } from './login.ts'
import { printNote } from './print.ts'
import { nodeTransport } from './transport.ts'

const ciSystems = ['github', 'gitlab', 'file', 'env'] as const
type CiSystem = (typeof ciSystems)[number]

/** Flags of a sign-in with the token of a CI job. */
export const oidcFlags = {
  oidc: string({
    description: 'Sign in a CI job with the token of its CI system, without stored secrets; svc-trust(7)',
    options: [...ciSystems],
    exclusive: ['email', 'password', 'password-stdin', 'otp', 'otp-secret-file', 'partner'],
  }),
  'oidc-env': string({
    description: 'Variable with the token, by default SVC_OIDC_TOKEN; with --oidc gitlab or env',
    helpValue: 'NAME',
    dependsOn: ['oidc'],
  }),
  'oidc-file': string({
    description: 'File with the token, or -; with --oidc file',
    helpValue: 'FILE',
    dependsOn: ['oidc'],
  }),
  audience: string({
    description: 'Audience of the token, by default the address of the service; with --oidc github',
    helpValue: 'TEXT',
    dependsOn: ['oidc'],
  }),
  policy: string({
    description: 'Id of the trust policy to use, where several match; with --oidc',
    helpValue: 'ID',
    dependsOn: ['oidc'],
  }),
}

export type OidcLoginFlags = {
  oidc: string
  'oidc-env'?: string | undefined
  'oidc-file'?: string | undefined
  audience?: string | undefined
  policy?: string | undefined
  org?: string | undefined
  store?: string | undefined
}

/** Signs in a job of a CI system, stores its access token and reports where. */
export async function loginWithOidc(run: CommandContext, flags: OidcLoginFlags) {
  checkFlags(flags)
  const within = targetOf(run, flags)
  const url = run.settings.url.value
  warnIfUnencrypted(url)
  const store = await chooseStore(run.settings, flags.store, run.interactive)
  // Checked before the token is consumed: it works only once.
  if (store.notKeptReason) throw sessionNotKept(store.notKeptReason)

  const token = await tokenOf(run, flags)
  const given = await run.anonymous.call(trust.exchange, { body: { token, ...within } })
  const { orgId, policy, permissions, expiresInSeconds } = given
  const session = { ...toStoredSession(url, given), again: loginCommand(flags) }
  const identity = { email: null, scope: 'organization', orgId, partnerId: null, workload: policy }
  const context = await storeSession(run, store, session, identity)
  printNote(`Signed in to ${url} by the trust policy ${policy.name}, organization scope of ${orgId}`)
  printNote(`It may do ${permissions.join(', ')} for ${expiresInSeconds / 60} minutes`)
  if (context) printNote(`Context ${context.name}; the access token is in ${describeLocation(context.place)}`)
  else printNote('The access token was not stored, as requested')
  if (run.clientOptions.token)
    printNote(`Warning: ${run.clientOptions.token.source} is set and takes precedence`)
  if (run.clientOptions.apiKey !== undefined) printNote('Warning: SVC_API_KEY is set and takes precedence')
  const until = new Date(session.expiresAt).toISOString()
  return { url, context: context?.name ?? null, policy, orgId, permissions, until, store: store.kind }
}

/** Refuses flags that the chosen CI system does not use. */
function checkFlags(flags: OidcLoginFlags): void {
  const { oidc } = flags
  const uses: Partial<Record<keyof OidcLoginFlags, readonly string[]>> = {
    'oidc-env': ['gitlab', 'env'],
    'oidc-file': ['file'],
    audience: ['github'],
  }
  for (const [flag, by] of Object.entries(uses)) {
    if (flags[flag as keyof OidcLoginFlags] === undefined || by.includes(oidc)) continue
    const hint = flag === 'audience' ? 'elsewhere the token already has its audience' : undefined
    throw usageError(`--${flag} is for --oidc ${by.join(' and ')}`, hint)
  }
  if (oidc === 'file' && flags['oidc-file'] === undefined) throw usageError('Missing --oidc-file')
}

/** The organization of the job: a stranger may trust its repository as well, for another organization. */
function targetOf(
  { settings }: CommandContext,
  flags: OidcLoginFlags,
): { orgId?: string; policyId?: string } {
  const org = flags.org ?? (settings.org.from === 'env' ? settings.org.value : undefined)
  const { policy } = flags
  for (const [flag, value] of Object.entries({ '--org': org, '--policy': policy })) {
    if (value === undefined || isId(value)) continue
    throw usageError(`${flag} takes an id here, not "${value}"`, 'names can be resolved only after a sign-in')
  }
  return { ...(org !== undefined && { orgId: org }), ...(policy !== undefined && { policyId: policy }) }
}

async function tokenOf(run: CommandContext, flags: OidcLoginFlags): Promise<string> {
  const token = (await readers[flags.oidc as CiSystem](run, flags)).trim()
  if (token === '') throw usageError('The token is empty')
  return token
}

const readers: Record<CiSystem, (run: CommandContext, flags: OidcLoginFlags) => Promise<string>> = {
  github: (run, { audience = run.settings.url.value }) => fetchGitHubToken(run, audience),
  gitlab: async (run, flags) =>
    readVariable(
      flags['oidc-env'],
      (name) => `id_tokens: in .gitlab-ci.yml: ${name}: { aud: "${run.settings.url.value}" }`,
    ),
  env: async (_, flags) => readVariable(flags['oidc-env'], () => '--oidc-env NAME names another variable'),
  file: async (_, flags) => {
    const path = flags['oidc-file']!
    return path === '-' ? readStdin('the token') : readTextFile(path, 'the token')
  },
}

function readVariable(name = 'SVC_OIDC_TOKEN', hint: (name: string) => string): string {
  const token = process.env[name]
  if (token) return token
  throw usageError(`${name} is not set`, hint(name))
}

/** GitHub issues a token for any audience that a job requests (docs.github.com, OpenID Connect reference). */
async function fetchGitHubToken({ settings }: CommandContext, audience: string): Promise<string> {
  const { ACTIONS_ID_TOKEN_REQUEST_URL: address, ACTIONS_ID_TOKEN_REQUEST_TOKEN: bearer } = process.env
  const hint = 'the job needs permissions: id-token: write'
  if (!address || !bearer)
    throw usageError('This is not a job of GitHub Actions that may request a token', hint)
  const url = new URL(address)
  url.searchParams.set('audience', audience)
  const send = nodeTransport({ caFile: settings.caFile.value })
  const { status, body } = await send({
    method: 'GET',
    url: url.href,
    headers: { authorization: `Bearer ${bearer}`, accept: 'application/json' },
    signal: AbortSignal.timeout(settings.timeout.value),
  })
  const { value } = status === 200 ? await parseObject(body) : {}
  if (typeof value === 'string') return value
  throw new CliError(`GitHub returned no token: it answered ${status}`, { code: 'no_token', hint })
}

async function parseObject(body: AsyncIterable<Uint8Array>): Promise<{ value?: unknown }> {
  return (parseJson(await textOf(body)) ?? {}) as { value?: unknown }
}

/** The command that signs in again, in the CI system. */
function loginCommand(flags: OidcLoginFlags): string {
  const kept = ['oidc', 'oidc-env', 'oidc-file', 'audience', 'org', 'policy'] as const
  const words = kept.flatMap((flag) => (flags[flag] === undefined ? [] : [`--${flag}`, flags[flag]]))
  return ['svc login', ...words].join(' ')
}
