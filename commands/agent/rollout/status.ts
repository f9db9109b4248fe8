import { ApiCommand } from '../../../src/cli/command.ts'
import { type ArgSet, booleanFlag, type FlagSet, textArg } from '../../../src/cli/flags.ts'
import { showStatus } from '../../../src/cli/rollouts/status.ts'

export default class AgentRolloutStatus extends ApiCommand {
  static override endpoints = ['GET /agent-rollouts/:id']
  static override summary =
    'Show the progress of a rollout: its waves, the failures with their reasons, and the next step'
  static override description =
    'By default of the last rollout. --watch follows until nothing more happens by itself: the rollout has ended, or is halted and waits for a decision. In a pipe it prints a line for each change, with --json one document.'
  static override examples = [
    `svc agent rollout status
Rollout of 1.2.0: running, wave 2 of 3 since 2026-01-31T12:31:04.000Z

  WAVE         DEVICES                          UPDATED  SOAKING  OFFERED  WAITING  FAILED
  1     1 %        100  [####################]      100        0        0        0       0
> 2     10 %       900  [########------------]      161      200      120      417       2
  3     100 %    9 000  [--------------------]        0        0        0    9 000       0

Failed: 2 not accepted, 45 of this wave may
  2  Rolled back: exit 1

Next: wave 3 opens, not before 2026-01-31T12:46:04.000Z (in 14 min): waits for 120 devices that were offered it, 200 devices to stay alive`,
    'svc agent rollout status --watch --exit-code',
    'svc agent rollout status 1.2.0 --jq .failures.reasons',
  ]
  static override args: ArgSet = { rollout: textArg('The rollout: id or version', false) }
  static override flags: FlagSet = {
    watch: booleanFlag({ char: 'w', description: 'Follow until nothing more happens by itself' }),
    'exit-code': booleanFlag({ description: 'Exit 1 when it is halted, aborted or rolled back' }),
  }

  async run(): Promise<void> {
    const { args, flags } = (await this.parse(AgentRolloutStatus)) as unknown as {
      args: { rollout?: string }
      flags: Record<string, unknown>
    }
    const watch = flags.watch === true
    const exitCode = flags['exit-code'] === true
    await showStatus(this.open(flags), { named: args.rollout, watch, exitCode })
  }
}
