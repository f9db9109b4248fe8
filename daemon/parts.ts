import type { pino } from 'pino'
import type { Cipher } from '../src/core/cipher.ts'
import type { Clock } from '../src/core/time.ts'
import type { Web } from '../src/sso/sign-in/web.ts'
import type { Storage } from '../src/storage/open.ts'
import type { AuditWatch } from './audit-watch.ts'
import type { Gateway } from './gateway.ts'
import type { KeyMeter } from './key-meter.ts'
import type { Limiter } from './limiter.ts'
import type { Outside } from './outside/open.ts'

/** What a running service is made of. */
export type Parts = Outside & {
  storage: Storage
  limiter: Limiter
  meter: KeyMeter
  cipher: Cipher
  clock: Clock
  log: pino.Logger
  audit: AuditWatch
  /** The connections of agents. */
  agents: Gateway
  /** Where people reach the service; known once it listens. */
  publicUrl: () => string
  /** Where browsers go on that sign in elsewhere. */
  web: Web
}
