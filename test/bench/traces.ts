import { stop, temporaryFolder } from './children.ts'
import { compete, type Pace } from './contest.ts'
import type { Row } from './figures.ts'
import { scenariosOf } from './http.ts'
import { startLoader } from './loader.ts'
import { startBare, startService } from './servers.ts'
import { buildWorld, type Place } from './world.ts'

const of = (share: string) => ({ OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: share })
const names = ['health', 'list sites', 'mint key', 'heartbeat']

/** What traces cost: the service without them, with one in a hundred, and with all. */
export async function traces(
  { newDatabase, ...pace }: Pace & { newDatabase?: () => Promise<string> },
  say: (line: string) => void,
): Promise<Row[]> {
  const accepting = { method: 'POST' as const, path: '/v1/traces', status: 200, reply: {}, schema: {} }
  const collector = await startBare('collector', 'http', [accepting])
  const to = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url }
  const kinds: [string, Record<string, string>][] = [
    ['svc', {}],
    ['svc, one trace in 100', { ...to, ...of('0.01') }],
    ['svc, all traces', { ...to, ...of('1') }],
  ]
  const services = []
  for (const [name, env] of kinds) {
    const place: Place = {
      dataDir: temporaryFolder('data'),
      ...(newDatabase && { databaseUrl: await newDatabase() }),
    }
    const scenarios = scenariosOf(await buildWorld(place))
    services.push({ scenarios, server: await startService(name, place, { env }) })
  }
  const load = startLoader()
  const rows: Row[] = []
  for (const [index, scenario] of services[0]!.scenarios.entries()) {
    if (!names.includes(scenario.name)) continue
    say(`traces: ${scenario.name}`)
    const contestants = services.map(({ server, scenarios }, n) => ({
      server,
      requests: scenarios[index]!.requests,
      as: n === 0 ? ('base' as const) : ('other' as const),
    }))
    const { aim, ...own } = scenario
    const made = await compete('traces', own, contestants, load, pace)
    rows.push(...made.map((row) => ({ ...row, against: row.against && 'svc without traces' })))
  }
  for (const { server } of services) await stop(server.child)
  await stop(collector.child)
  return rows
}
