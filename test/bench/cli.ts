import { spawnSync } from 'node:child_process'
import { stop, temporaryFolder } from './children.ts'
import { atMost, median, type Row, spreadOf } from './figures.ts'
import { startService, svc, svcEnv } from './servers.ts'
import { buildWorld } from './world.ts'

/** Start of the command line next to that of Node itself. */
export async function cli(options: { rounds: number }, say: (line: string) => void): Promise<Row[]> {
  say('cli')
  const place = { dataDir: temporaryFolder('data') }
  const world = await buildWorld(place)
  const server = await startService('svc', place)
  const env = svcEnv({ SVC_URL: server.url, SVC_TOKEN: world.tokens.partnerAdmin })
  const commands = [
    { name: 'svc --version', args: [svc, '--version'], aim: 3 },
    { name: 'svc orgs --json', args: [svc, 'orgs', '--json'], aim: 6 },
    { name: 'svc orgs --help', args: [svc, 'orgs', '--help'], aim: 8 },
  ]
  const node = (args: readonly string[]): number => {
    const begin = performance.now()
    const { status, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8', timeout: 20_000 })
    if (status !== 0) throw new Error(`${args.slice(1).join(' ')}: exit ${status}\n${stderr}`)
    return performance.now() - begin
  }
  const rows = commands.map(({ name, args, aim }): Row => {
    const times: number[] = []
    const bare: number[] = []
    node(args)
    node(args)
    for (let round = 0; round < options.rounds; round++) {
      if (round % 2) times.push(node(args))
      bare.push(node(['-e', '0']))
      if (round % 2 === 0) times.push(node(args))
    }
    const ratio = spreadOf(times.map((time, round) => time / bare[round]!))
    const figures = { ms: median(times), 'node ms': median(bare) }
    return { bench: 'cli', subject: name, against: 'node -e 0', ratio, ...atMost(ratio.median, aim), figures }
  })
  await stop(server.child)
  return rows
}
