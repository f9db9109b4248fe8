import { settingsOf } from '../audit/rules.ts'
import type { Cipher } from '../core/cipher.ts'
import { assertNotEmptyChange, invalid, Problem } from '../core/errors.ts'
import { newId } from '../core/new-id.ts'
import type { Outbound } from '../core/outbound.ts'
import { hasPermission, missingPermissions } from '../core/permissions.ts'
import { organizationScope, type Scope } from '../core/scope.ts'
import { addSeconds, type Clock, type Instant } from '../core/time.ts'
import {
  type HandlersOf,
  inSteps,
  type Preparation,
  type UserCaller,
  type WorkloadCaller,
} from '../handler.ts'
import { findGrants } from '../identity/memberships.ts'
import { checkMayGrantPeople, grantableBy } from '../identity/roles/rules.ts'
import { findRole } from '../identity/roles/store.ts'
import { endPasswordSessions } from '../identity/sessions/tenants.ts'
import type { AccessTokens } from '../identity/sessions/tokens.ts'
import { assertHasKey } from '../storage/key-check.ts'
import type { Db, Storage } from '../storage/open.ts'
import { resolveOrg } from '../tenancy/resolve-org.ts'
import { checkOrg } from '../tenancy/store.ts'
import type * as contract from './contract.ts'
import { DiscoveryFailure, discover, endpointFaults } from './discovery.ts'
import type { ssoIdentities } from './identities/contract.ts'
import { identityHandlers } from './identities/handlers.ts'
import { presets } from './presets/rules.ts'
import { checkReady, parseCertificate } from './readiness.ts'
import {
  applyChange,
  auditDiff,
  bindToConfigurer,
  type Configurer,
  changesIssuer,
  checkNotNarrowed,
  checkProven,
  checkSameOrg,
  clearEmpty,
  type DiscoveredProvider,
  issuerToDiscover,
  makeProvider,
  type ProviderRecord,
  provenWithinSeconds,
  rebindToConfigurer,
  redactProvider,
} from './rules.ts'
import { createSigningKey, findSigningKey, insertSigningKey, type NewSigningKey } from './saml/signing-key.ts'
import type { ssoSignIn } from './sign-in/contract.ts'
import { signInHandlers } from './sign-in/handlers.ts'
import { registrationUrls, type WebConfig } from './sign-in/web.ts'
import * as store from './store.ts'
import { TokenVerifier } from './token-verifier.ts'
import type { ssoTrials } from './trials/contract.ts'
import { trialHandlers } from './trials/handlers.ts'

type Providers = typeof contract.ssoProviders
type ProviderInput = Omit<contract.NewProvider, 'orgId' | 'name' | 'force'> & { name?: string | undefined }

type Author = UserCaller | WorkloadCaller
const configurerOf = (by: Author): Configurer => ({ id: by.id, permissions: grantableBy(by) })

type Discovered = { discovered?: DiscoveredProvider | undefined; warning?: string | undefined }
type Outside = Preparation<Providers['create']>['outside']

/** Prepared before the transaction begins. */
type PreparedChange<S> = Discovered & {
  input: S
  /** A new key for signing requests, if the installation has none yet. */
  key: NewSigningKey | undefined
}

type SsoDependencies = {
  cipher: Cipher
  outbound: Outbound
  clock: Clock
  access: AccessTokens
  web: WebConfig
  log: { warn(about: object, message: string): void }
}

export function ssoHandlers(on: SsoDependencies): {
  sso: HandlersOf<typeof contract.sso>
  ssoProviders: HandlersOf<Providers>
  ssoTrials: HandlersOf<typeof ssoTrials>
  ssoIdentities: HandlersOf<typeof ssoIdentities>
  ssoSignIn: HandlersOf<typeof ssoSignIn>
} {
  const { cipher, outbound, web, log } = on
  /** The provider in replies, with the addresses to register there. */
  const toReply = (provider: ProviderRecord): contract.Provider => ({
    ...redactProvider(provider),
    ...registrationUrls(web, provider),
  })

  /** Normalizes the input. @throws invalid_request for addresses that no provider can have */
  async function checkInput<S extends ProviderInput>(body: S, outside: Outside): Promise<S> {
    const input = clearEmpty(body)
    const faults = (await outside(() => endpointFaults(outbound, input))) ?? []
    if (faults.length > 0) {
      throw invalid(faults.map(([endpoint, message]) => ({ path: `body.${endpoint}`, message })))
    }
    return input.certificate ? { ...input, certificate: parseCertificate(input.certificate) } : input
  }

  async function newKeyIfMissing(
    { read }: Storage,
    input: ProviderInput,
    scope: Scope,
    now: Instant,
  ): Promise<NewSigningKey | undefined> {
    const own = input.signRequests ? await findSigningKey(read, cipher) : undefined
    if (!input.signRequests || own?.key) return undefined
    if (own) {
      // Other processes may still be able to decrypt it.
      await assertHasKey(read, cipher, own.encrypted)
      // All tenants share the key, and have to register its successor.
      if (scope.kind !== 'system') return undefined
    }
    return createSigningKey(cipher, own?.encrypted, now)
  }

  /** Discovery is optional: a failure is a warning. */
  async function discoverIfNeeded(issuer: string | undefined, outside: Outside): Promise<Discovered> {
    if (issuer === undefined) return {}
    try {
      return { discovered: await outside(() => discover(outbound, issuer)) }
    } catch (error) {
      if (!(error instanceof DiscoveryFailure)) throw error
      log.warn({ issuer, reason: error.message }, 'OIDC discovery failed')
      const hint = capitalize(error.hint)
      return { warning: `OIDC discovery failed for issuer "${issuer}": ${error.message}. ${hint}` }
    }
  }

  return {
    ssoTrials: trialHandlers(on),
    ssoIdentities: identityHandlers(on),
    ssoSignIn: signInHandlers({ ...on, keys: new TokenVerifier(on) }),

    sso: {
      presets: async () => ({ data: [...presets] }),

      async check({ db, params: { orgId } }) {
        const found = await store.findActiveProvider(db, organizationScope(orgId))
        if (!found) return { ssoEnabled: false }
        const { enforceSSO, ...provider } = found
        return { ssoEnabled: true, provider, enforceSSO, loginUrl: `/api/v1/sso/login/${orgId}` }
      },
    },

    ssoProviders: {
      async list({ db, readQueryIfWide, scope, query }) {
        if (query.orgId !== undefined) await checkOrg(db, scope, query.orgId)
        const { data, pagination } = await readQueryIfWide((on) =>
          store.listProviders(on, cipher, scope, query),
        )
        return { data: data.map((one) => ({ ...one, ...registrationUrls(web, one) })), pagination }
      },

      create: inSteps<Providers['create'], PreparedChange<contract.NewProvider>>({
        async prepare({ storage, body, scope, caller, now, outside }) {
          checkNotNarrowed(scope)
          const input = await checkInput(body, outside)
          const made = { id: newId(), by: configurerOf(caller), now }
          const { force: _, ...wanted } = input
          const provider = makeProvider({ ...wanted, orgId: '' }, undefined, made)
          const key = await newKeyIfMissing(storage, input, scope, now)
          return {
            input,
            key,
            ...(await discoverIfNeeded(issuerToDiscover(undefined, input, provider), outside)),
          }
        },
        async run({ db, scope, caller, now, note, quota }, { input, discovered, warning, key }) {
          const { force, ...wanted } = input
          const orgId = await resolveOrg(db, scope, input.orgId)
          const made = { id: newId(), by: configurerOf(caller), now }
          const provider = makeProvider({ ...wanted, orgId }, discovered, made)
          await checkRole(db, provider, caller)
          if (provider.enforceSSO) checkProven(force === true)
          await quota({ orgId })
          await store.insertProvider(db, cipher, provider)
          const isReplaced = key !== undefined && (await insertSigningKey(db, key))
          const { id, name, type, status } = provider
          note({ orgId, resourceId: id, resourceName: name })
          note({
            after: settingsOf(redactProvider(provider)),
            details: { type, status, ...forcedDetail(provider, force), ...replacedDetail(isReplaced) },
          })
          return { data: toReply(provider), ...toWarning(warning, await countMembersBeyond(db, provider)) }
        },
      }),

      async show({ db, scope, params }) {
        const provider = await store.getProvider(db, cipher, scope, params.id)
        const membersBeyond = await countMembersBeyond(db, provider)
        return { data: toReply(provider), membersBeyond, ...toWarning(undefined, membersBeyond) }
      },

      update: inSteps<Providers['update'], PreparedChange<ProviderInput>>({
        async prepare({ storage, scope, params, body, now, outside }) {
          checkNotNarrowed(scope)
          const { orgId: _, force: __, ...change } = body
          const before = await store.getProvider(storage.read, cipher, scope, params.id)
          if (body.orgId !== undefined) await checkOrg(storage.read, scope, body.orgId)
          checkSameOrg(before, body.orgId)
          assertNotEmptyChange(change)
          const input = await checkInput(change, outside)
          const after = applyChange(before, input, undefined, now)
          const key = await newKeyIfMissing(storage, input, scope, now)
          return { input, key, ...(await discoverIfNeeded(issuerToDiscover(before, input, after), outside)) }
        },
        async run({ db, scope, params, body: { force }, caller, now, note }, prepared) {
          const { input, discovered, warning, key } = prepared
          const before = await store.lockProvider(db, cipher, scope, params.id)
          const after = bindToConfigurer(
            before,
            applyChange(before, input, discovered, now),
            configurerOf(caller),
          )
          await checkRole(db, after, caller)
          if (after.status === 'active') checkReady(after, now, 'body')
          const elsewhere = changesIssuer(before, after)
          if (elsewhere) await store.endProviderSessions(db, scope, after.id, now)
          const forgotten = elsewhere ? await store.deleteIdentities(db, scope, after.id) : 0
          const enforces = after.enforceSSO && !before.enforceSSO
          if (enforces) checkProven(force === true || (await isProven(db, scope, after, now)))
          await store.changeProvider(db, cipher, scope, after)
          const isReplaced = key !== undefined && (await insertSigningKey(db, key))
          await endPasswordSessionsIfEnforced(db, after, now)
          note({ orgId: after.orgId, resourceName: after.name, ...auditDiff(before, after) })
          note({
            details: {
              ...(enforces && forcedDetail(after, force)),
              ...(forgotten > 0 && { forgotten }),
              ...replacedDetail(isReplaced),
            },
          })
          return { data: toReply(after), ...toWarning(warning, await countMembersBeyond(db, after)) }
        },
      }),

      async remove({ db, scope, params, now, note }) {
        checkNotNarrowed(scope)
        const provider = await store.lockProvider(db, cipher, scope, params.id)
        await store.endProviderSessions(db, scope, provider.id, now)
        const forgotten = await store.deleteIdentities(db, scope, provider.id)
        await store.removeProvider(db, scope, provider.id)
        await endPasswordSessionsIfEnforced(db, provider, now)
        const { orgId, name: resourceName } = provider
        note({ orgId, resourceName, before: settingsOf(redactProvider(provider)), details: { forgotten } })
        return { success: true }
      },

      async setStatus({ db, scope, caller, params, body: { status }, now, note }) {
        checkNotNarrowed(scope)
        const before = await store.lockProvider(db, cipher, scope, params.id)
        const set = { ...before, status, updatedAt: now }
        const after = status === 'active' ? rebindToConfigurer(set, configurerOf(caller)) : set
        if (status === 'active') {
          checkReady(after, now, 'provider')
          await checkRole(db, after, caller)
        }
        // Sessions that began at a provider end when it is no longer active.
        else if (before.status === 'active') await store.endProviderSessions(db, scope, after.id, now)
        await store.changeProvider(db, cipher, scope, after)
        await endPasswordSessionsIfEnforced(db, after, now)
        const { id: resourceId, orgId, name: resourceName } = after
        note({ orgId, resourceId, resourceName })
        note(auditDiff(before, after))
        return { data: toReply(after), ...toWarning(undefined, await countMembersBeyond(db, after)) }
      },

      test: inSteps<Providers['test'], { provider: ProviderRecord; found: DiscoveredProvider | undefined }>({
        async prepare({ storage, scope, params }) {
          const provider = await store.getProvider(storage.read, cipher, scope, params.id)
          return { provider, found: await testDiscovery(provider) }
        },
        async run({ db, note }, { provider, found }) {
          const { orgId, name, issuer } = provider
          note({ orgId, resourceName: name, details: { issuer } })
          const warning = toWarning(undefined, await countMembersBeyond(db, provider))
          if (!found) return { success: true, message: 'Provider configuration appears valid', ...warning }
          const discovery = {
            issuer: found.issuer,
            authorizationEndpoint: found.authorizationUrl!,
            tokenEndpoint: found.tokenUrl!,
            userInfoEndpoint: found.userInfoUrl,
          }
          return { success: true, message: 'Provider configuration is valid', discovery, ...warning }
        },
      }),
    },
  }

  /** @throws invalid_request, oidc_discovery_failed */
  async function testDiscovery({ type, issuer }: ProviderRecord): Promise<DiscoveredProvider | undefined> {
    if (type !== 'oidc') {
      const message = 'Only OIDC providers can be tested'
      throw invalid([{ path: 'params.id', message }], message)
    }
    if (issuer === null) return undefined
    return discover(outbound, issuer).catch((error: unknown) => {
      if (!(error instanceof DiscoveryFailure)) throw error
      const { message, hint } = error
      throw new Problem('oidc_discovery_failed', `OIDC discovery failed: ${message}`, { details: { hint } })
    })
  }
}

/**
 * A user cannot have accounts created with a role that they could not grant. It is checked on every change,
 * since whoever decides which people the provider admits also grants them the role.
 * @throws invalid_request, forbidden
 */
async function checkRole(db: Db, provider: ProviderRecord, by: Author): Promise<void> {
  const { orgId, defaultRoleId: id } = provider
  if (id === null) return
  if (!(await findRole(db, { kind: 'organization', orgId }, id))) {
    const message = 'is not a role that people of this organization can have'
    throw invalid([{ path: 'body.defaultRoleId', message }])
  }
  checkMayGrantPeople(by, (await findGrants(db, id)).permissions)
}

const replacedDetail = (isReplaced: boolean) => (isReplaced ? { signingKey: 'replaced' } : {})

/** Number of members of its organization who have more permissions than the provider may assert. */
async function countMembersBeyond(db: Db, { orgId, vouches }: ProviderRecord): Promise<number> {
  const held = new Set(vouches)
  let count = 0
  for (const { roleId, members } of await store.countMembersByRole(db, organizationScope(orgId))) {
    if (missingPermissions(held, (await findGrants(db, roleId)).permissions).length > 0) count += members
  }
  return count
}

/** Warnings for the person who configures a provider. */
function toWarning(discovery: string | undefined, membersBeyond: number): { warning?: string } {
  const members = membersBeyond === 1 ? 'One member holds' : `${membersBeyond} members hold`
  const refused = `${members} permissions that whoever configured it did not: they cannot sign in with it until somebody who holds them activates it`
  const warnings = [discovery, membersBeyond > 0 ? refused : undefined].filter((one) => one !== undefined)
  return warnings.length > 0 ? { warning: warnings.join('. ') } : {}
}

/**
 * Ends sessions that began with a password, if the active provider, this one or the next, enforces single
 * sign-on.
 */
async function endPasswordSessionsIfEnforced(db: Db, { orgId }: ProviderRecord, now: Instant): Promise<void> {
  const inUse = await store.findActiveProvider(db, organizationScope(orgId))
  if (inUse?.enforceSSO) await endPasswordSessions(db, orgId, now)
}

/** Whether an administrator of the organization has signed in with it recently. */
async function isProven(db: Db, scope: Scope, { id }: ProviderRecord, now: Instant): Promise<boolean> {
  const roles = await store.listSignedInRoles(db, scope, id, addSeconds(now, -provenWithinSeconds))
  for (const role of roles) {
    if (hasPermission((await findGrants(db, role)).permissions, 'organizations:write')) return true
  }
  return false
}

const forcedDetail = ({ enforceSSO }: ProviderRecord, force: boolean | undefined) =>
  enforceSSO && force === true ? { forced: true } : {}

const capitalize = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)
