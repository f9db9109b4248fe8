import { Command, Flags } from '@oclif/core'

export default class AgentSimulate extends Command {
  static override summary = 'Simulate a fleet of agents, to try a service out'
  static override description =
    'Light agents in one process: they enroll, report evenly over the interval, answer commands and live queries, and follow ' +
    'the versions they are offered, each in the way --failures gave it. They end with --for or Ctrl-C, with a summary. Exit 1 when a ' +
    'heartbeat was missed: not answered before the next one was due. One address makes all the requests: start the ' +
    'service with RATE_LIMIT_IP=off RATE_LIMIT_ENROLL_IP=off. More in man/svc-agent.7, "Simulated agents".'
  static override examples = [
    `svc enroll create --name simulation --max-usage 1000 --out-file sim.key
svc agent simulate --count 1000 --enrollment-key @sim.key --state sim.json
1000 agents are enrolled; Ctrl-C ends`,
    'svc agent simulate --count 1000 --state sim.json --failures crash=5%,silent=1% --update-after 30s',
    `svc agent simulate --count 20000 --state sim.json --websockets 2000 --logs 6000 --for 30m --json | tail -1
{"event":"summary","agents":20000,"online":20000,…,"missed":0,…}`,
  ]
  static override flags = {
    count: Flags.integer({
      description: 'How many agents',
      helpValue: 'N',
      min: 1,
      max: 100_000,
      required: true,
    }),
    'enrollment-key': Flags.string({
      description: 'Key to enroll with: - for standard input, @file for a file [env: SVC_ENROLLMENT_KEY]',
      helpValue: '-|@FILE',
    }),
    url: Flags.string({ description: 'Address of the service [env: SVC_URL]', helpValue: 'URL' }),
    'allow-remote': Flags.boolean({ description: 'Also where that is another machine' }),
    interval: Flags.string({
      description: 'Time between two heartbeats of an agent',
      helpValue: 'TIME',
      default: '60s',
    }),
    websockets: Flags.integer({
      description: 'So many agents stay connected, for live queries',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    logs: Flags.integer({
      description: 'Entries that agents say of themselves, a minute, of all of them together',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    events: Flags.integer({
      description: 'Entries of the logs of their machines, likewise',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    version: Flags.string({
      description: 'Version that they have at first; that of this program unless told',
      helpValue: 'VERSION',
    }),
    platform: Flags.string({
      description:
        'What they run on, linux/x64 unless told, with parts of the fleet: linux/x64=80%,windows/x64=20%',
      helpValue: 'MIX',
    }),
    failures: Flags.string({
      description:
        'What goes wrong with updates, with its part of the fleet: crash, silent, slow, wrong, refuse',
      helpValue: 'MIX',
    }),
    'update-after': Flags.string({
      description: 'How long an update takes',
      helpValue: 'TIME',
      default: '20s',
    }),
    for: Flags.string({ description: 'End so long after all are enrolled', helpValue: 'TIME' }),
    state: Flags.string({
      description: 'Keeps the fleet, with its tokens, so that it comes back without enrolling; mode 0600',
      helpValue: 'FILE',
    }),
    seed: Flags.integer({ description: 'Another number makes other machines and fates', helpValue: 'N' }),
    json: Flags.boolean({ description: 'Print what happens as NDJSON on stdout, the summary last' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentSimulate)
    const { simulateAtTerminal } = await import('../../src/device-agent/simulate/terminal.ts')
    await simulateAtTerminal(flags, this.config.version)
  }
}
