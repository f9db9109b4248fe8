import type { Cipher } from '../../core/cipher.ts'
import type { Outbound } from '../../core/outbound.ts'
import type { Instant } from '../../core/time.ts'
import type { AccessTokens } from '../../identity/sessions/tokens.ts'
import type { KeySets } from '../keys.ts'
import type { Held } from '../rules.ts'
import type { Trace } from '../trace.ts'
import type { SignIn } from './store.ts'
import type { Web } from './web.ts'

/** What signing in is made with. */
export type SigningIn = {
  cipher: Cipher
  outbound: Outbound
  keys: KeySets
  access: AccessTokens
  web: Web
  log: { warn(about: object, message: string): void }
}

/** What a protocol needs to tell who somebody is that comes back. */
export type Brought = {
  provider: Held
  signIn: SignIn
  now: Instant
  trace: Trace
  base: string
  entityId: string
}
