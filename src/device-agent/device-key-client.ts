import { z } from 'zod'
import { agentKeys } from '../agents/keys/contract.ts'
import { ApiError } from '../core/client.ts'
import { devicePublicKey, newDeviceKey, signProof } from '../core/device-key.ts'
import { safeParse } from '../core/schema.ts'
import type { Agent } from './agent.ts'
import type { IdentityHolder } from './identity-holder.ts'
import { StagedTokens } from './replies.ts'
import { isAgentRefused } from './retry.ts'
import type { TokenRotator } from './rotation.ts'
import { scheduleTask } from './schedule.ts'

const hour = 3_600_000
const day = 24 * hour

/** One that is later than the clock of this machine, which was set back, counts as just now. */
const msSince = (instant: string | undefined): number =>
  instant === undefined ? Number.POSITIVE_INFINITY : Math.max(0, Date.now() - Date.parse(instant))

const Registered = z.object({ serviceKey: z.string().min(1) })
const Challenge = z.object({ challenge: z.string().min(1) })

/**
 * The key pair of this machine. The service learns the public key while the token is valid; with the private one the
 * machine gets a new token when the service no longer knows this one, as after the restore of an older backup.
 */
export function deviceKeyClient(agent: Agent, identity: IdentityHolder, rotation: TokenRotator) {
  const params = (): { id: string } => ({ id: identity.current().agentId })

  const register = scheduleTask(agent, 'key', day, async () => {
    const privateKey = identity.current().proof?.privateKey ?? newDeviceKey()
    // On disk before the service knows it: a key cannot be replaced.
    if (identity.current().proof === undefined) identity.save({ proof: { privateKey } })
    const client = agent.connect(() => identity.current().authToken)
    const body = { publicKey: devicePublicKey(privateKey) }
    const reply = await client
      .call(agentKeys.register, { params: params(), body })
      .catch((error: unknown) => {
        // A service that is older, or that knows another key: it may be newer tomorrow.
        if (error instanceof ApiError && [404, 409].includes(error.status)) return undefined
        throw error
      })
    const service = safeParse(Registered, reply).data?.serviceKey
    if (service !== undefined) await identity.change({ proof: { privateKey, service } })
  })

  // systemd starts an agent again that has ended: kept on disk, or each start would take the tokens of the copy again.
  let recoveredAt = agent.clock.now() - msSince(identity.current().proof?.recoveredAt)
  /** Gets new tokens. @throws `refused` when this machine or the service cannot do that */
  async function recover(refused: ApiError): Promise<void> {
    const { proof, agentId, deviceId } = identity.current()
    if (refused.code !== 'invalid_agent_credentials' || proof?.service === undefined) throw refused
    // Each of two copies of a machine ends the tokens of the other, without end.
    if (agent.clock.now() - recoveredAt < hour) {
      const error =
        'The new token of this machine was replaced within an hour: a copy of it uses the same key'
      throw new ApiError(refused.status, { error, code: 'machine_copied' })
    }
    const { privateKey, service } = proof
    const client = agent.connect()
    try {
      const given = safeParse(Challenge, await client.call(agentKeys.challenge)).data
      if (given === undefined) throw refused
      const { challenge } = given
      const signature = signProof({ agentId, service, challenge }, privateKey)
      const body = { challenge, serviceKey: service, signature }
      const tokens = safeParse(
        StagedTokens,
        await client.call(agentKeys.recover, { params: params(), body }),
      ).data
      if (tokens === undefined) throw refused
      const proved = { ...proof, service, recoveredAt: new Date().toISOString() }
      await identity.change({ ...tokens, staged: undefined, proof: proved })
    } catch (error) {
      throw error instanceof ApiError && error.status === 404 ? refused : error
    }
    recoveredAt = agent.clock.now()
    agent.report({ event: 'token', deviceId })
  }

  return {
    async registerWhenDue(): Promise<void> {
      if (identity.current().proof?.service === undefined) await register()
    },
    /** Repeats a call whose token was refused with one that is valid, if there is a way to one. */
    async withToken<T>(call: () => Promise<T>): Promise<T> {
      try {
        return await call()
      } catch (error) {
        if (!isAgentRefused(error)) throw error
        // The token may have been replaced before a restart.
        if (!(await rotation.resume())) await recover(error)
        return call()
      }
    },
  }
}
export type DeviceKeyClient = ReturnType<typeof deviceKeyClient>
