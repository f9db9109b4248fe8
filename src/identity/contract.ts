import { factors } from './factors/contract.ts'
import { sessions } from './sessions/contract.ts'

/** Everything below /auth. */
export const auth = { ...sessions, ...factors }
