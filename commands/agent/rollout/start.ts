import { agentRollouts } from '../../../src/agents/rollouts/contract.ts'
import { command } from '../../../src/cli/command.ts'
import { waveFlags } from '../../../src/cli/rollouts/wave-flags.ts'

export default command(agentRollouts.start, {
  args: ['version'],
  customFlags: waveFlags,
  format: ({ version }) =>
    `The devices for ${String(version)} are being drawn; svc agent rollout status --watch shows the progress\n`,
  description:
    'A percentage is of all devices that can install the version, including earlier waves. The next wave opens when the devices of the last one report the version and have stayed alive; too many failures halt the rollout. After a wave of 100% the version is promoted.',
  examples: [
    'svc agent rollout start 1.2.0 --wave filter:"Pilot devices" --wave 1% --wave 10% --wave 100% --gate 15m --soak 1h --max-failures 2%\nThe devices for 1.2.0 are being drawn; svc agent rollout status --watch shows the progress',
    'svc agent rollout start 1.3.0-rc.1 --wave filter:"Pilot devices" -q\n0197c1ff-2a64-7b31-9c0d-5e6f7a8b9c0d',
  ],
})
