import { deviceAuthorization } from './device-authorization/contract.ts'
import { factors } from './factors/contract.ts'
import { acceptance, invitations, myInvitations } from './invitations/contract.ts'
import { passwords } from './passwords/contract.ts'
import { phones } from './phones/contract.ts'
import { registration } from './registration/contract.ts'
import { sessions } from './sessions/contract.ts'
import { people } from './users/contract.ts'

/** Everything below /auth. */
export const auth = {
  ...sessions,
  ...deviceAuthorization,
  ...passwords,
  ...factors,
  ...phones,
  ...registration,
  ...acceptance,
}

/** Everything below /users. */
export const users = { ...people, ...myInvitations, ...invitations }
