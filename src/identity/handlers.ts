import type { HandlersOf } from '../handler.ts'
import type { auth } from './contract.ts'
import { type FactorKeys, factorHandlers } from './factors/handlers.ts'
import { passwordHandlers } from './passwords/handlers.ts'
import { phoneHandlers } from './phones/handlers.ts'
import { type RegistrationKeys, registrationHandlers } from './registration/handlers.ts'
import { sessionHandlers } from './sessions/handlers.ts'

/** Everything below /auth. */
export const authHandlers = (keys: FactorKeys & RegistrationKeys): HandlersOf<typeof auth> => ({
  ...sessionHandlers(keys),
  ...passwordHandlers(keys),
  ...factorHandlers(keys),
  ...phoneHandlers(keys),
  ...registrationHandlers(keys),
})
