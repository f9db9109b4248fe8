import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { stringify } from 'yaml'
import { fromHere, stop, temporaryFolder } from './children.ts'
import { atMost, type Row } from './figures.ts'
import { longestStall, residentMb, type Server, startService, svc, svcEnv } from './servers.ts'
import { buildWorld, type Place } from './world.ts'

type Options = { organizations: number; newDatabase?: () => Promise<string> }

type File = Record<string, Record<string, unknown>[]>
type Reply = { totals: Record<string, number>; version: string }

/** Organizations in one apply: each has a site, a webhook and a role besides, and an apply makes at most 1,000 changes, in eight seconds. */
const atOnce = 125

const webhookSecret = 'correct horse battery staple'

/** A file of so many organizations with a site, a webhook and a role each; the first `moved` sites are renamed. */
function fileOf(organizations: number, moved = 0): File {
  const each = (make: (slug: string, n: number) => Record<string, unknown>) =>
    Array.from({ length: organizations }, (_, n) => make(`customer-${n}`, n))
  return {
    organizations: each((slug, n) => ({ slug, name: `Customer ${n}` })),
    sites: each((org, n) => ({ org, name: 'Main Office', timezone: n < moved ? 'Europe/Paris' : 'UTC' })),
    webhooks: each((org) => ({
      org,
      name: 'Alerts',
      url: `https://hooks.example.com/${org}`,
      secret: webhookSecret,
      events: ['alert.triggered'],
    })),
    roles: each((org) => ({ org, name: 'Night shift', permissions: ['devices:read', 'alerts:read'] })),
  }
}

/** Plans of a partner's whole configuration, which it has applied from files. */
export async function configuration(
  { organizations, newDatabase }: Options,
  say: (line: string) => void,
): Promise<Row[]> {
  const place: Place = {
    dataDir: temporaryFolder('configuration'),
    ...(newDatabase && { databaseUrl: await newDatabase() }),
  }
  const { tokens } = await buildWorld(place, 1)
  const filler = await startService('svc', place)
  for (let made = 0; made < organizations; ) {
    made = Math.min(organizations, made + atOnce)
    const body = { document: fileOf(made), set: 'all' }
    const { version } = await asked(filler, tokens.partnerAdmin, '/config/plan', body)
    await asked(filler, tokens.partnerAdmin, '/config/apply', { ...body, version })
    say(`configuration: ${made} organizations`)
  }
  await stop(filler.child)
  const stalls = join(place.dataDir, 'stalls')
  const measure = async (subject: string, seconds: number, moved: number): Promise<Row> => {
    const body = { document: fileOf(organizations, moved), set: 'all' }
    // Each in a service that has planned nothing before: the first plan is the slowest, and memory is of this one.
    const server = await startService('svc', place, {
      nodeFlags: ['--import', fromHere('./stalls.ts')],
      env: { STALLS_FILE: stalls },
    })
    await longestStall(server, stalls)
    const start = performance.now()
    const { totals } = await asked(server, tokens.partnerAdmin, '/config/plan', body)
    const took = (performance.now() - start) / 1000
    const stall = await longestStall(server, stalls)
    const memory = residentMb(server.child, 'VmHWM') ?? Number.NaN
    await stop(server.child)
    const changes = Object.values(totals).reduce((sum, count) => sum + count, 0)
    if (changes !== moved) throw new Error(`${subject}: ${changes} changes instead of ${moved}`)
    return {
      bench: 'configuration',
      subject: `${organizations} organizations: ${subject}`,
      figures: { seconds: took, 'stall ms': stall, 'MB at most': memory, changes },
      aim: `≤ ${seconds} s, 300 MB, 50 ms`,
      met: [atMost(took, seconds), atMost(memory, 300), atMost(stall, 50)].every(({ met }) => met),
    }
  }
  const rows = [await measure('plan without changes', 2, 0), await measure('plan of 500 changes', 5, 500)]
  const server = await startService('svc', place)
  const env = svcEnv({ SVC_URL: server.url, SVC_TOKEN: tokens.partnerAdmin, WEBHOOK_SECRET: webhookSecret })
  const written = join(place.dataDir, 'all.yaml')
  /** The whole command: it reads the file, and prints what differs with who changed it. */
  const diff = (moved: number): Row => {
    const { webhooks, ...others } = fileOf(organizations, moved)
    const named = webhooks!.map((webhook) => ({ ...webhook, secret: `\${env:WEBHOOK_SECRET}` }))
    writeFileSync(written, stringify({ ...others, webhooks: named }))
    const args = [svc, 'config', 'diff', written, '--set', 'all', '--env', 'WEBHOOK_SECRET']
    const start = performance.now()
    const { stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: 'utf8', timeout: 60_000 })
    const seconds = (performance.now() - start) / 1000
    const said = moved === 0 ? 'no changes' : `${moved}`
    if (!stdout.includes(said)) throw new Error(`svc config diff: ${stdout.slice(0, 1000)}${stderr}`)
    return {
      bench: 'configuration',
      subject: `${organizations} organizations: svc config diff, ${moved} changes`,
      figures: { seconds },
    }
  }
  rows.push(diff(0), diff(500))
  await stop(server.child)
  return rows
}

async function asked({ url }: Server, token: string, path: string, body: unknown): Promise<Reply> {
  const reply = await fetch(`${url}/api/v1${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!reply.ok) throw new Error(`POST ${path}: ${reply.status} ${(await reply.text()).slice(0, 2000)}`)
  return (await reply.json()) as Reply
}
