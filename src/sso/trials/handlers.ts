import type { Cipher } from '../../core/cipher.ts'
import { Problem } from '../../core/errors.ts'
import { newId } from '../../core/new-id.ts'
import { addSeconds } from '../../core/time.ts'
import type { HandlersOf } from '../../handler.ts'
import { newToken, tokenHash } from '../../identity/sessions/tokens.ts'
import { checkComplete } from '../readiness.ts'
import { checkNotNarrowed } from '../rules.ts'
import { redirectTarget, signInSeconds } from '../sign-in/rules.ts'
import type { WebConfig } from '../sign-in/web.ts'
import { getProvider } from '../store.ts'
import type { ssoTrials } from './contract.ts'
import { insertTrial, showTrial } from './store.ts'

/** A trial shows what an identity provider asserts about people: only its administrators may read it. */
export const trialHandlers = (on: { cipher: Cipher; web: WebConfig }): HandlersOf<typeof ssoTrials> => ({
  async begin({ db, scope, params, body, now, note }) {
    checkNotNarrowed(scope)
    const base = on.web.url()
    if (base === undefined) throw new Problem('sso_not_configured')
    const provider = await getProvider(db, on.cipher, scope, params.id)
    checkComplete(provider)
    const [id, token] = [newId(), newToken()]
    await insertTrial(db, {
      id,
      provider_id: provider.id,
      token_hash: tokenHash(token),
      // The result is read here, not at the redirect address, so there is nothing for a challenge to protect.
      redirect_path: redirectTarget(body.redirect, 'none'),
      created_at: now,
      expires_at: addSeconds(now, signInSeconds),
    })
    const { orgId, name } = provider
    note({ orgId, resourceId: provider.id, resourceName: name, details: { signIn: 'begun' } })
    return { id, loginUrl: `${base}/api/v1/sso/login/${orgId}?test=${token}` }
  },

  async show({ db, scope, params: { id: providerId, testId: id } }) {
    const trial = await showTrial(db, scope, { id, providerId })
    if (!trial) throw new Problem('not_found')
    return trial
  },
})
