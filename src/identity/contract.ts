import { factors } from './factors/contract.ts'
import { acceptance, invitations } from './invitations/contract.ts'
import { sessions } from './sessions/contract.ts'
import { people } from './users/contract.ts'

/** Everything below /auth. */
export const auth = { ...sessions, ...factors, ...acceptance }

/** Everything below /users. */
export const users = { ...people, ...invitations }
