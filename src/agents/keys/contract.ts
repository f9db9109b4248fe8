import { z } from 'zod'
import { agentAccess, endpoint, publicAccess } from '../../core/endpoint.ts'
import { instant, secret } from '../../core/schema.ts'
import { agentParams } from '../../devices/contract.ts'

const tag = 'Agents'

/** 32 and 64 bytes in base64. */
const key = z.string().regex(/^[A-Za-z0-9+/]{43}=$/)
const signature = z.string().regex(/^[A-Za-z0-9+/]{86}==$/)

export const PublicKey = key.describe('Ed25519 public key of the machine: its 32 bytes in base64')
export const ServiceKey = key.describe('Public key of the service, which the proofs of the machine name')

export const agentKeys = {
  register: endpoint({
    method: 'PUT',
    path: '/agents/:id/key',
    summary: 'Register the public key of the machine, by which it can get new tokens; it cannot be replaced',
    tag,
    access: agentAccess,
    limit: 'AGENT_CHANGES',
    params: agentParams,
    body: z.strictObject({ publicKey: PublicKey }),
    reply: z.object({ serviceKey: ServiceKey }),
    audit: { action: 'agent.key.register', resource: 'device' },
    emits: ['device.updated'],
    errors: [
      'agent_key_conflict',
      'rotation_stale_current',
      'pending_rotation_unconfirmed',
      'rotation_unresolvable',
    ],
    example: { publicKey: 'lLK6pHK0N4FBBuNoi2VTyyO8y9dTtJ6UuYdxQ3J1c2s=' },
  }),
  challenge: endpoint({
    method: 'POST',
    path: '/agents/challenge',
    idempotencyKey: { refused: 'repeatable' },
    summary: 'Request a challenge, which a machine whose token is refused answers; anybody gets one',
    tag,
    access: publicAccess,
    reply: z.object({
      challenge: z.string().describe('To be signed once'),
      expiresAt: instant,
    }),
    audit: { unaudited: 'changes nothing' },
  }),
  recover: endpoint({
    method: 'POST',
    path: '/agents/:id/recover-token',
    idempotencyKey: { refused: 'credential' },
    summary: 'Get new tokens with a signed challenge; those before end at once',
    tag,
    access: publicAccess,
    limit: 'AGENT_PROOF',
    params: agentParams,
    body: z.strictObject({
      challenge: secret(
        z
          .string()
          .max(200)
          .regex(/^[\w.+/=-]+$/),
      ),
      serviceKey: ServiceKey,
      signature: secret(signature).describe(
        'Ed25519, in base64, over the lines "svc agent proof", the agent id, the key of the service and the challenge',
      ),
    }),
    reply: z.object({
      authToken: secret(z.string()).describe('Bearer token of the agent, displayed only once'),
      watchdogAuthToken: secret(z.string()).describe('Bearer token of its watchdog, displayed only once'),
    }),
    audit: { action: 'agent.token.recover', resource: 'device' },
    emits: ['alert.triggered'],
    errors: [
      'agent_challenge_invalid',
      'invalid_agent_credentials',
      'device_decommissioned',
      'device_quarantined',
    ],
    example: {
      challenge: 'mi3x0k1c.AAECAwQFBgcICQoLDA0ODw.47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=',
      serviceKey: 'lLK6pHK0N4FBBuNoi2VTyyO8y9dTtJ6UuYdxQ3J1c2s=',
      signature: `${'A'.repeat(86)}==`,
    },
  }),
}
