import { agentRollouts } from '../../agents/rollouts/contract.ts'
import type { CommandContext } from '../base.ts'
import { CliError, exitCodes } from '../exit-codes.ts'

/** The last started rollout: the running one, if any. */
export async function latestRollout({ client }: CommandContext): Promise<string> {
  const { data } = await client.call(agentRollouts.list, { query: { limit: 1 } })
  if (data[0]) return data[0].id
  throw new CliError('There has been no rollout yet', {
    exit: exitCodes.notFound,
    code: 'not_found',
    hint: 'svc agent rollout start VERSION --wave 1% --wave 10% --wave 100%',
  })
}
