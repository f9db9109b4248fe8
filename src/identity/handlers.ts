import type { HandlersOf } from '../handler.ts'
import type { auth, users } from './contract.ts'
import { deviceAuthorizationHandlers } from './device-authorization/handlers.ts'
import { type FactorDependencies, factorHandlers } from './factors/handlers.ts'
import {
  acceptanceHandlers,
  type InvitationDependencies,
  invitationHandlers,
} from './invitations/handlers.ts'
import { myInvitations } from './invitations/mine.ts'
import { passwordHandlers } from './passwords/handlers.ts'
import { phoneHandlers } from './phones/handlers.ts'
import { type RegistrationDependencies, registrationHandlers } from './registration/handlers.ts'
import { sessionHandlers } from './sessions/handlers.ts'
import { peopleHandlers } from './users/handlers.ts'

/** Everything below /auth. */
export const authHandlers = (
  keys: FactorDependencies & RegistrationDependencies,
): HandlersOf<typeof auth> => ({
  ...sessionHandlers(keys),
  ...deviceAuthorizationHandlers(keys),
  ...passwordHandlers(keys),
  ...factorHandlers(keys),
  ...phoneHandlers(keys),
  ...registrationHandlers(keys),
  ...acceptanceHandlers(keys),
})

/** Everything below /users. */
export const userHandlers = (post: InvitationDependencies): HandlersOf<typeof users> => ({
  ...peopleHandlers(post),
  ...myInvitations,
  ...invitationHandlers(post),
})
