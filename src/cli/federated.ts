import { string } from '@oclif/core/flags'
import { isId } from '../core/ids.ts'
import { trust } from '../trust/contract.ts'
import { readStdin, readTextFile } from './ask.ts'
import type { Session as Run } from './base.ts'
import { chooseStore } from './choose-store.ts'
import { CliError, usage } from './exit.ts'
import { keep, notKept, warnIfOpen } from './login.ts'
import { say } from './print.ts'
import { sessionOf } from './send.ts'
import { whereabouts } from './store.ts'
import { nodeTransport } from './transport.ts'

const systems = ['github', 'gitlab', 'file', 'env'] as const
type System = (typeof systems)[number]

/** Flags of a sign-in with the token of a CI job. */
export const oidcFlags = {
  oidc: string({
    description: 'Sign in a CI job with the token it has there: no secret is stored; svc-trust(7)',
    options: [...systems],
    exclusive: ['email', 'password', 'password-stdin', 'otp', 'otp-secret-file', 'partner'],
  }),
  'oidc-env': string({
    description: 'Variable that holds the token, SVC_OIDC_TOKEN unless told; with --oidc gitlab or env',
    helpValue: 'NAME',
    dependsOn: ['oidc'],
  }),
  'oidc-file': string({
    description: 'File that holds the token, or -; with --oidc file',
    helpValue: 'FILE',
    dependsOn: ['oidc'],
  }),
  audience: string({
    description: 'Whom the token is for, the address of the service unless told; with --oidc github',
    helpValue: 'TEXT',
    dependsOn: ['oidc'],
  }),
  policy: string({
    description: 'Id of the trust policy to sign in by, where several fit; with --oidc',
    helpValue: 'ID',
    dependsOn: ['oidc'],
  }),
}

export type FederatedFlags = {
  oidc: string
  'oidc-env'?: string | undefined
  'oidc-file'?: string | undefined
  audience?: string | undefined
  policy?: string | undefined
  org?: string | undefined
  store?: string | undefined
}

/** Signs in a job of a CI system, keeps its access for as long as that counts, and says where. */
export async function loginFederated(run: Run, flags: FederatedFlags) {
  checkFlags(flags)
  const within = placesOf(run, flags)
  const url = run.settings.url.value
  warnIfOpen(url)
  const store = await chooseStore(run.settings, flags.store, run.attended)
  // Before the token is used up, which could not be used again.
  if (store.unkept) throw notKept(store.unkept)

  const token = await tokenOf(run, flags)
  const given = await run.stranger.call(trust.exchange, { body: { token, ...within } })
  const { orgId, policy, permissions, expiresInSeconds } = given
  const session = { ...sessionOf(url, given), again: againWith(flags) }
  const identity = { email: null, scope: 'organization', orgId, partnerId: null, workload: policy }
  const context = await keep(run, store, session, identity)
  say(`Signed in to ${url} by the trust policy ${policy.name}, organization scope of ${orgId}`)
  say(`It may do ${permissions.join(', ')} for ${expiresInSeconds / 60} minutes`)
  if (context) say(`Context ${context.name}; the access is in ${whereabouts(context.place)}`)
  else say('The access was not kept, as you asked')
  if (run.send.token) say(`Warning: ${run.send.token.source} is set and goes before it`)
  if (run.send.apiKey !== undefined) say('Warning: SVC_API_KEY is set and goes before it')
  const until = new Date(session.expiresAt).toISOString()
  return { url, context: context?.name ?? null, policy, orgId, permissions, until, store: store.kind }
}

/** What a system has no use for is a mistake. */
function checkFlags(flags: FederatedFlags): void {
  const { oidc } = flags
  const uses: Partial<Record<keyof FederatedFlags, readonly string[]>> = {
    'oidc-env': ['gitlab', 'env'],
    'oidc-file': ['file'],
    audience: ['github'],
  }
  for (const [flag, by] of Object.entries(uses)) {
    if (flags[flag as keyof FederatedFlags] === undefined || by.includes(oidc)) continue
    const hint = flag === 'audience' ? 'elsewhere the token is made for its audience already' : undefined
    throw usage(`--${flag} is for --oidc ${by.join(' and ')}`, hint)
  }
  if (oidc === 'file' && flags['oidc-file'] === undefined) throw usage('Missing --oidc-file')
}

/** Where the job means to go: a stranger may trust its repository as well, for an organization of their own. */
function placesOf({ settings }: Run, flags: FederatedFlags): { orgId?: string; policyId?: string } {
  const org = flags.org ?? (settings.org.from === 'env' ? settings.org.value : undefined)
  const { policy } = flags
  for (const [flag, value] of Object.entries({ '--org': org, '--policy': policy })) {
    if (value === undefined || isId(value)) continue
    throw usage(`${flag} takes an id here, not "${value}"`, 'names are told to those who are signed in alone')
  }
  return { ...(org !== undefined && { orgId: org }), ...(policy !== undefined && { policyId: policy }) }
}

async function tokenOf(run: Run, flags: FederatedFlags): Promise<string> {
  const token = (await readers[flags.oidc as System](run, flags)).trim()
  if (token === '') throw usage('The token is empty')
  return token
}

const readers: Record<System, (run: Run, flags: FederatedFlags) => Promise<string>> = {
  github: (run, { audience = run.settings.url.value }) => askGitHub(run, audience),
  gitlab: async (run, flags) =>
    variable(
      flags['oidc-env'],
      (name) => `id_tokens: in .gitlab-ci.yml: ${name}: { aud: "${run.settings.url.value}" }`,
    ),
  env: async (_, flags) => variable(flags['oidc-env'], () => '--oidc-env NAME names another variable'),
  file: async (_, flags) => {
    const path = flags['oidc-file']!
    return path === '-' ? readStdin('the token') : readTextFile(path, 'the token')
  },
}

function variable(name = 'SVC_OIDC_TOKEN', hint: (name: string) => string): string {
  const token = process.env[name]
  if (token) return token
  throw usage(`${name} is not set`, hint(name))
}

/** GitHub makes a token for whichever audience a job asks for (docs.github.com, OpenID Connect reference). */
async function askGitHub({ settings }: Run, audience: string): Promise<string> {
  const { ACTIONS_ID_TOKEN_REQUEST_URL: address, ACTIONS_ID_TOKEN_REQUEST_TOKEN: bearer } = process.env
  const hint = 'the job has to have permissions: id-token: write'
  if (!address || !bearer) throw usage('This is no job of GitHub Actions that may ask for a token', hint)
  const url = new URL(address)
  url.searchParams.set('audience', audience)
  const send = nodeTransport({ caFile: settings.caFile.value })
  const { status, body } = await send({
    method: 'GET',
    url: url.href,
    headers: { authorization: `Bearer ${bearer}`, accept: 'application/json' },
    signal: AbortSignal.timeout(settings.timeout.value),
  })
  const { value } = status === 200 ? await objectIn(body) : {}
  if (typeof value === 'string') return value
  throw new CliError(`GitHub gave no token: it answered ${status}`, { code: 'no_token', hint })
}

async function objectIn(body: AsyncIterable<Uint8Array>): Promise<{ value?: unknown }> {
  const chunks: Uint8Array[] = []
  for await (const chunk of body) chunks.push(chunk)
  try {
    return (JSON.parse(Buffer.concat(chunks).toString('utf8')) ?? {}) as { value?: unknown }
  } catch {
    return {}
  }
}

/** The command that signs in again: what it needs is the business of the CI system. */
function againWith(flags: FederatedFlags): string {
  const kept = ['oidc', 'oidc-env', 'oidc-file', 'audience', 'org', 'policy'] as const
  const words = kept.flatMap((flag) => (flags[flag] === undefined ? [] : [`--${flag}`, flags[flag]]))
  return ['svc login', ...words].join(' ')
}
