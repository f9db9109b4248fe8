import type { HandlersOf } from '../handler.ts'
import type { auth, users } from './contract.ts'
import { type FactorKeys, factorHandlers } from './factors/handlers.ts'
import { acceptanceHandlers, invitationHandlers, type Post } from './invitations/handlers.ts'
import { myInvitations } from './invitations/mine.ts'
import { passwordHandlers } from './passwords/handlers.ts'
import { phoneHandlers } from './phones/handlers.ts'
import { type RegistrationKeys, registrationHandlers } from './registration/handlers.ts'
import { sessionHandlers } from './sessions/handlers.ts'
import { peopleHandlers } from './users/handlers.ts'

/** Everything below /auth. */
export const authHandlers = (keys: FactorKeys & RegistrationKeys): HandlersOf<typeof auth> => ({
  ...sessionHandlers(keys),
  ...passwordHandlers(keys),
  ...factorHandlers(keys),
  ...phoneHandlers(keys),
  ...registrationHandlers(keys),
  ...acceptanceHandlers(keys),
})

/** Everything below /users. */
export const userHandlers = (post: Post): HandlersOf<typeof users> => ({
  ...peopleHandlers(post),
  ...myInvitations,
  ...invitationHandlers(post),
})
