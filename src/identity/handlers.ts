import type { HandlersOf } from '../handler.ts'
import type { auth, users } from './contract.ts'
import { type FactorKeys, factorHandlers } from './factors/handlers.ts'
import { acceptanceHandlers, invitationHandlers, type Post } from './invitations/handlers.ts'
import { sessionHandlers } from './sessions/handlers.ts'
import { peopleHandlers } from './users/handlers.ts'

/** Everything below /auth. */
export const authHandlers = (keys: FactorKeys): HandlersOf<typeof auth> => ({
  ...sessionHandlers(keys),
  ...factorHandlers(keys),
  ...acceptanceHandlers(keys),
})

/** Everything below /users. */
export const userHandlers = (post: Post): HandlersOf<typeof users> => ({
  ...peopleHandlers(post),
  ...invitationHandlers(post),
})
