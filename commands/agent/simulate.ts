import { Command, Flags } from '@oclif/core'

export default class AgentSimulate extends Command {
  static override summary = 'Simulate a fleet of agents, to test a service'
  static override description =
    'Light agents in one process: they enroll, report evenly over the interval, answer commands and live queries, and follow ' +
    'the versions they are offered, with the failures of --failures. They stop after --for or with Ctrl-C, with a summary. Exit 1 when a ' +
    'heartbeat was missed: not answered before the next one was due. All requests come from one address: start the ' +
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
      description: 'Number of agents',
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
    'allow-remote': Flags.boolean({ description: 'Allow a service on another machine' }),
    interval: Flags.string({
      description: 'Time between two heartbeats of an agent',
      helpValue: 'TIME',
      default: '60s',
    }),
    websockets: Flags.integer({
      description: 'Number of agents that stay connected, for live queries',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    logs: Flags.integer({
      description: 'Log entries of agents per minute, of the complete fleet',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    events: Flags.integer({
      description: 'Entries of machine event logs per minute, of the complete fleet',
      helpValue: 'N',
      min: 0,
      default: 0,
    }),
    version: Flags.string({
      description: 'Version at the start; by default that of this program',
      helpValue: 'VERSION',
    }),
    platform: Flags.string({
      description:
        'Platforms with their parts of the fleet, such as linux/x64=80%,windows/x64=20%; by default linux/x64',
      helpValue: 'MIX',
    }),
    failures: Flags.string({
      description: 'Failures of updates with their parts of the fleet: crash, silent, slow, wrong, refuse',
      helpValue: 'MIX',
    }),
    'update-after': Flags.string({
      description: 'Duration of an update',
      helpValue: 'TIME',
      default: '20s',
    }),
    for: Flags.string({ description: 'Stop this long after all are enrolled', helpValue: 'TIME' }),
    state: Flags.string({
      description:
        'File that stores the fleet with its tokens, so that it returns without enrolling; mode 0600',
      helpValue: 'FILE',
    }),
    seed: Flags.integer({ description: 'Another number gives other machines and failures', helpValue: 'N' }),
    json: Flags.boolean({ description: 'Print events as NDJSON on stdout, the summary last' }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(AgentSimulate)
    const { simulateAtTerminal } = await import('../../src/device-agent/simulate/terminal.ts')
    await simulateAtTerminal(flags, this.config.version)
  }
}
