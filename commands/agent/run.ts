import { Command, Flags } from '@oclif/core'

export default class AgentRun extends Command {
  static endpoints = ['POST /agents/challenge', 'POST /agents/:id/recover-token']
  static override summary = 'Run the agent on this machine'
  static override description =
    'Enrolls this machine if needed, then reports its inventory, metrics and logs, and that it is alive, ' +
    'until SIGTERM or Ctrl-C. The enrollment key is needed once; afterwards the identity in the state directory is used. ' +
    'A watchdog restarts it if it exits. As a single file it updates itself: svc-agent(7).'
  static override examples = [
    'svc agent run --url https://svc.example.com --enrollment-key @key.txt',
    'svc agent run',
    `svc agent run --once --json
{"event":"enrolled","deviceId":"0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11",…}
{"event":"inventory","deviceId":"0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11","disks":2,"network":5,"software":710}
{"event":"heartbeat","deviceId":"0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11","metrics":{"cpuPercent":3.1,…}}`,
  ]
  static override flags = {
    'enrollment-key': Flags.string({
      description: 'Key to enroll with: - for standard input, @file for a file [env: SVC_ENROLLMENT_KEY]',
      helpValue: '-|@FILE',
    }),
    url: Flags.string({
      description:
        'Address of the service; by default the one the machine enrolled with, at first http://127.0.0.1:3000 [env: SVC_URL]',
      helpValue: 'URL',
    }),
    'state-dir': Flags.string({
      description:
        'Directory of the identity; /var/lib/svc-agent for root, else below ~/.local/state [env: SVC_AGENT_STATE_DIR]',
      helpValue: 'DIR',
    }),
    interval: Flags.integer({
      description: 'Seconds between heartbeats',
      helpValue: 'SECONDS',
      min: 1,
      max: 86_400,
    }),
    'trust-key': Flags.string({
      description:
        'Ed25519 public key that releases have to be signed with, in base64 or @file; replaces the keys of the service. May be repeated',
      helpValue: 'KEY|@FILE',
      multiple: true,
    }),
    once: Flags.boolean({ description: 'Send inventory, heartbeat and logs once, and exit' }),
    json: Flags.boolean({ description: 'Print events as NDJSON on stdout' }),
    'no-input': Flags.boolean({ description: 'Never prompt; fail instead [env: SVC_NO_INPUT]' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentRun)
    const { runAtTerminal } = await import('../../src/device-agent/terminal.ts')
    await runAtTerminal(flags, { kind: 'package', version: this.config.version })
  }
}
