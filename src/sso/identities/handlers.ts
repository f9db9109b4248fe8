import type { Cipher } from '../../core/cipher.ts'
import type { HandlersOf } from '../../handler.ts'
import { checkNotNarrowed } from '../rules.ts'
import { getProvider, lockProvider } from '../store.ts'
import type { ssoIdentities } from './contract.ts'
import { getIdentity, listIdentities, unlinkIdentity } from './store.ts'

export const identityHandlers = ({ cipher }: { cipher: Cipher }): HandlersOf<typeof ssoIdentities> => ({
  async list({ db, scope, params, query }) {
    const { id } = await getProvider(db, cipher, scope, params.id)
    return listIdentities(db, scope, id, query)
  },

  async unlink({ db, scope, params, now, note }) {
    note({ resourceId: params.identityId })
    checkNotNarrowed(scope)
    // No sign-in at it completes meanwhile.
    const { id: providerId, orgId, name: provider } = await lockProvider(db, cipher, scope, params.id)
    const which = { id: params.identityId, providerId }
    const { email: resourceName, userId, externalId } = await getIdentity(db, scope, which)
    await unlinkIdentity(db, scope, which, now)
    note({ orgId, resourceName, details: { providerId, provider, userId, externalId } })
    return { success: true }
  },
})
