import type { HandlersOf } from '../handler.ts'
import type { auth } from './contract.ts'
import { type FactorKeys, factorHandlers } from './factors/handlers.ts'
import { sessionHandlers } from './sessions/handlers.ts'

/** Everything below /auth. */
export const authHandlers = (keys: FactorKeys): HandlersOf<typeof auth> => ({
  ...sessionHandlers(keys),
  ...factorHandlers(keys),
})
