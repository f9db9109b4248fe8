import { Command, Flags } from '@oclif/core'

export default class AgentRun extends Command {
  static override summary = 'Run the agent on this machine'
  static override description =
    'Enrolls this machine when it is not enrolled yet, then reports its inventory, its metrics, that it is alive and what it logs, ' +
    'until SIGTERM or Ctrl-C. The enrollment key is needed once; afterwards the identity in the state directory is used. ' +
    'A watchdog starts it again should it ever end. Run from a single file, it goes to other versions by itself: svc-agent(7).'
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
      description: 'Address of the service; by default the one the machine enrolled with [env: SVC_URL]',
      helpValue: 'URL',
    }),
    'state-dir': Flags.string({
      description:
        'Where the identity is kept; /var/lib/svc-agent for root, else below ~/.local/state [env: SVC_AGENT_STATE_DIR]',
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
        'Ed25519 public key that releases have to be signed with, in base64 or @file; instead of those the service names. May be given several times',
      helpValue: 'KEY|@FILE',
      multiple: true,
    }),
    once: Flags.boolean({ description: 'Send inventory, heartbeat and logs once, and end' }),
    json: Flags.boolean({ description: 'Print what happens as NDJSON on stdout' }),
    'no-input': Flags.boolean({ description: 'Never ask; fail instead [env: SVC_NO_INPUT]' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentRun)
    const { runAtTerminal } = await import('../../src/device-agent/terminal.ts')
    await runAtTerminal(flags, { kind: 'package', version: this.config.version })
  }
}
