import { isDeepStrictEqual } from 'node:util'
import type { Logger } from 'pino'
import { createSigner, type Signer } from '../../src/audit/checkpoints/signer.ts'
import type { Cipher } from '../../src/core/cipher.ts'
import type { Clock } from '../../src/core/time.ts'
import { createAccessTokens } from '../../src/identity/sessions/tokens.ts'
import type { Storage } from '../../src/storage/open.ts'
import { workloadTokens } from '../../src/trust/tokens.ts'
import type { Tokens } from '../actor.ts'
import type { Config } from '../config.ts'
import { type Integrations, openIntegrations } from '../integrations/open.ts'
import { cipherOf } from './cipher.ts'

/** The secrets of a running service and what is made of them. A set never changes: another one takes its place as a whole. */
export type SecretSet = {
  config: Config
  cipher: Cipher
  tokens: Tokens
  signer: Signer
  ports: Integrations
}

/** `before`: the set that this one follows, whose connections stay where their settings are the same. */
export function secretSet(
  config: Config,
  { storage, clock, log }: { storage: Storage; clock: Clock; log: Logger },
  before?: SecretSet,
): SecretSet {
  const { secrets, previous, signing } = config
  const isSame = before && isDeepStrictEqual(portSettings(config), portSettings(before.config))
  return {
    config,
    cipher: cipherOf(config, before?.cipher.unreadable),
    tokens: {
      access: createAccessTokens(secrets.jwt, previous.jwt),
      workloads: workloadTokens(secrets.jwt, previous.jwt),
    },
    signer: createSigner(storage, signing),
    ports: isSame ? before.ports : openIntegrations(config, storage, clock, log, before?.ports.outbound),
  }
}

const portSettings = ({ outside, secrets }: Config) => [outside, secrets.recoveryPepper]

/** What a set has, as of each use. */
export const currentProxy = <T extends object>(part: () => T): T =>
  new Proxy({} as T, { get: (_, name) => Reflect.get(part(), name) })
