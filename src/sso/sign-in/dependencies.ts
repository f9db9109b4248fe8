import type { Cipher } from '../../core/cipher.ts'
import type { Outbound } from '../../core/outbound.ts'
import type { Instant } from '../../core/time.ts'
import type { AccessTokens } from '../../identity/sessions/tokens.ts'
import type { ProviderRecord } from '../rules.ts'
import type { TokenVerifier } from '../token-verifier.ts'
import type { SignInTrace } from '../trace.ts'
import type { SignIn } from './store.ts'
import type { WebConfig } from './web.ts'

/** Dependencies of the sign-in handlers. */
export type SignInDependencies = {
  cipher: Cipher
  outbound: Outbound
  keys: TokenVerifier
  access: AccessTokens
  web: WebConfig
  log: { warn(about: object, message: string): void }
}

/** Input that a protocol needs to read the identity from a callback. */
export type CallbackInput = {
  provider: ProviderRecord
  signIn: SignIn
  now: Instant
  trace: SignInTrace
  base: string
  entityId: string
}
