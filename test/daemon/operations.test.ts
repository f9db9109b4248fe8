import { execFile, spawnSync } from 'node:child_process'
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it, test } from 'vitest'
import { parse } from 'yaml'
import { onEveryDatabase, temporaryFolder } from '../databases.ts'
import { startService } from '../harness.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { buildWorld } from '../world.ts'

/* What docs/operations/ gives operators fits what the service serves. */

const root = fileURLToPath(new URL('../..', import.meta.url))
const rulesFile = join(root, 'docs/operations/alert-rules.yml')
const rulesTests = ['alert-rules.yml', 'alert-rules-late.yml'].map((name) => join(root, 'test/daemon', name))

const prometheus = readFileSync(join(root, 'docs/operations/prometheus.yml'), 'utf8')

type Rule = {
  alert: string
  expr: string
  labels: { severity: string }
  annotations: { summary: string; description: string; command: string }
}
const { groups } = parse(readFileSync(rulesFile, 'utf8')) as { groups: { rules: Rule[] }[] }
const rules = groups.flatMap((group) => group.rules)

type Panel = {
  id: number
  type: string
  title: string
  gridPos: { x: number; y: number; w: number; h: number }
  datasource?: { type: string; uid: string }
  targets?: { refId: string; expr: string; datasource: { uid: string } }[]
}
type Dashboard = {
  uid: string
  title: string
  schemaVersion: number
  panels: Panel[]
  templating: { list: { name: string; type: string; query: string | { query: string } }[] }
}
const dashboard = JSON.parse(
  readFileSync(join(root, 'docs/operations/grafana-dashboard.json'), 'utf8'),
) as Dashboard
const { panels } = dashboard
const charts = panels.filter(({ type }) => type !== 'row')
const charted = charts.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))

/** Metrics in the tables of the manual, with their labels. */
const manual = [
  ...readFileSync(join(root, 'man/svc-serve.8.md'), 'utf8').matchAll(
    /^\| (svc_\w+)(?:\{([\w,]+)\})? \| \S/gm,
  ),
].map(([, name = '', labels = '']) => ({ name, labels: labels.split(',').filter((label) => label !== '') }))

/** Metrics that an expression names, with the labels that it asks each for. */
const selectorsIn = (expr: string) =>
  [...expr.matchAll(/\b((?:svc|nodejs|process)_\w+|up)\b(?:\{([^}]*)\})?/g)].map(
    ([, name = '', inner = '']) => ({
      name,
      labels: [...inner.matchAll(/(\w+)=~?"([^"]*)"/g)]
        .map(([, label = '', value = '']) => ({ label, value }))
        .filter(({ label }) => label !== 'job' && label !== 'instance'),
    }),
  )

const expressions = [...rules.map(({ expr }) => expr), ...charted]

describe('metrics of a real service', () => {
  onEveryDatabase((kind, open) => {
    async function scraped() {
      // Where traces are configured there is a metric more. Nothing listens at this address.
      const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }
      const service = await startService(open, { env: { METRICS_TOKEN: metricsToken, ...traces } })
      await buildWorld(service)
      // A busy machine may be late with what comes from the database.
      const lacking = () => scrapedValues(service.url, 'svc_metrics_lacking')
      await expect.poll(lacking, { timeout: 20_000 }).toEqual({ '': 0 })
      const reply = await fetch(`${service.url}/metrics`, {
        headers: { authorization: `Bearer ${metricsToken}` },
      })
      const text = await reply.text()
      const kinds = new Map(
        [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!]),
      )
      const samples = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
      return { kinds, samples }
    }

    it('are those of man/svc-serve.8, with the labels that it gives', async () => {
      const { kinds, samples } = await scraped()
      const served = [...kinds.keys()].filter((name) => name.startsWith('svc_'))
      expect(manual.map(({ name }) => name).sort()).toEqual(served.sort())
      for (const { name, labels } of manual) {
        const own = samples.find((line) => new RegExp(`^${name}(_count)?[{ ]`).test(line))
        if (own === undefined) continue
        const said = [...own.matchAll(/(\w+)="/g)].map(([, label]) => label)
        expect(said.sort(), name).toEqual(labels.sort())
      }
    })

    it('are those that rules and the dashboard name, with the labels that they are selected by', async () => {
      const { kinds, samples } = await scraped()
      const isServed = (name: string) => {
        const base = name.replace(/_(bucket|sum|count)$/, '')
        return name === 'up' || kinds.has(name) || (base !== name && kinds.get(base) === 'histogram')
      }
      const selectors = expressions.flatMap(selectorsIn)
      expect(selectors.length).toBeGreaterThan(80)
      expect(selectors.filter(({ name }) => !isServed(name)).map(({ name }) => name)).toEqual([])
      const missing = selectors.flatMap(({ name, labels }) =>
        labels
          // The kinds of failures are there only once there is one.
          .filter(({ label, value }) => label !== 'status' || value !== '5..')
          .filter(({ label, value }) => {
            const wanted = new RegExp(`^${name}\\{.*\\b${label}="(${value})"`)
            return !samples.some((line) => wanted.test(line))
          })
          .map(({ label, value }) => `${kind}: ${name}{${label}="${value}"}`),
      )
      expect(missing).toEqual([])
    })
  })
})

describe('the rules', () => {
  it('say what happened, what it means and what to run next', () => {
    expect(rules.length).toBeGreaterThan(20)
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length)
    for (const { alert, expr, labels, annotations } of rules) {
      expect([alert, labels.severity]).toEqual([expect.stringMatching(/^Svc[A-Za-z]+$/), labels.severity])
      expect(['page', 'ticket']).toContain(labels.severity)
      expect(annotations.description.length, alert).toBeGreaterThan(60)
      expect(annotations.summary.length, alert).toBeGreaterThan(20)
      expect(selectorsIn(expr).length, alert).toBeGreaterThan(0)
    }
  })

  it('name commands that exist', () => {
    const known = new Set(
      globSync('**/*.ts', { cwd: join(root, 'commands') }).map((file) =>
        file.replace(/(\/index)?\.ts$/, '').replaceAll('/', ' '),
      ),
    )
    const others = /^(curl -sS -m 10 |man svc-serve$|psql "\$DATABASE_URL" -c )/
    for (const { alert, annotations } of rules) {
      const [, own] = /^svc ([a-z -]+?)(?: --.*)?$/.exec(annotations.command) ?? []
      if (own === undefined) expect(annotations.command, alert).toMatch(others)
      else expect(known, alert).toContain(own)
    }
  })

  it('each have a test in which they fire', () => {
    const text = rulesTests.map((file) => readFileSync(file, 'utf8')).join('')
    expect(
      rules.map(({ alert }) => alert).filter((alert) => !text.includes(`{alertname="${alert}"}`)),
    ).toEqual([])
  })
})

/** How Grafana writes the variable, which is no template of this file. */
const chosen = ['$', '{datasource}'].join('')

describe('the dashboard', () => {
  it('has what Grafana needs to import it', () => {
    expect(dashboard).toMatchObject({ uid: 'svc-overview', title: 'svc', schemaVersion: expect.any(Number) })
    const ids = panels.map(({ id }) => id)
    expect(new Set(ids).size).toBe(ids.length)
    const [datasource, ...variables] = dashboard.templating.list
    expect(datasource).toMatchObject({ name: 'datasource', type: 'datasource', query: 'prometheus' })
    expect(variables.map(({ name }) => name)).toEqual(['job', 'instance'])
    expect(charts.length).toBeGreaterThan(30)
    for (const { title, datasource: own, targets = [] } of charts) {
      expect(own, title).toEqual({ type: 'prometheus', uid: chosen })
      expect(targets.length, title).toBeGreaterThan(0)
      expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length)
      for (const target of targets) expect(target.datasource.uid).toBe(chosen)
    }
  })

  it('has no panel over another or beyond the grid, and each in the row that it belongs to', () => {
    expect(panels[0]?.type).toBe('row')
    const cells = new Map<string, string>()
    for (const { title, gridPos } of panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(cells.get(`${x},${y}`), `${title} covers it`).toBeUndefined()
          cells.set(`${x},${y}`, title)
        }
      }
    }
    const rows = panels.map(({ gridPos }) => gridPos.y)
    expect(rows).toEqual([...rows].sort((a, b) => a - b))
  })
})

test('Prometheus scrapes the job that the rules name, from a process with the token of a file', () => {
  const { scrape_configs: jobs } = parse(prometheus) as {
    scrape_configs: {
      job_name: string
      metrics_path?: string
      authorization: { credentials_file: string }
      static_configs: { targets: string[] }[]
    }[]
  }
  expect(jobs.map(({ job_name, metrics_path }) => [job_name, metrics_path])).toEqual([['svc', undefined]])
  expect(jobs[0]!.authorization).toEqual({ credentials_file: expect.stringMatching(/^\/etc\//) })
  const port = /^PORT=(\d+)$/m.exec(readFileSync(join(root, 'docs/operations/svc.env'), 'utf8'))![1]
  expect(jobs[0]!.static_configs).toEqual([{ targets: [`127.0.0.1:${port}`] }])
})

const missing = spawnSync('promtool', ['--version']).status === 0 ? undefined : 'promtool is not installed'

describe.skipIf(missing)(`promtool${missing === undefined ? '' : `: ${missing}`}`, () => {
  const run = (...args: string[]) =>
    promisify(execFile)('promtool', args, { timeout: 120_000 }).then(
      () => 'fine',
      ({ stdout, stderr }: { stdout: string; stderr: string }) => `${stdout}${stderr}`,
    )

  test('the rules are valid', async () => {
    expect(await run('check', 'rules', rulesFile)).toBe('fine')
  })

  test('the configuration is valid, with the rules and the token where the guide puts them', async () => {
    const folder = await temporaryFolder()
    const guide = readFileSync(join(root, 'docs/operations/monitor.md'), 'utf8')
    let configuration = prometheus
    for (const [name, text] of [
      ['svc-alert-rules.yml', readFileSync(rulesFile, 'utf8')],
      ['svc-metrics-token', metricsToken],
    ] as const) {
      expect(guide).toContain(` /etc/prometheus/${name}\n`)
      expect(configuration).toContain(`/etc/prometheus/${name}\n`)
      configuration = configuration.replaceAll(`/etc/prometheus/${name}`, join(folder, name))
      writeFileSync(join(folder, name), text)
    }
    writeFileSync(join(folder, 'prometheus.yml'), configuration)
    expect(await run('check', 'config', join(folder, 'prometheus.yml'))).toBe('fine')
  })

  test('a healthy service fires nothing, and each rule fires when it should', async () => {
    expect(await run('test', 'rules', ...rulesTests)).toBe('fine')
  }, 130_000)

  test('the expressions of the dashboard are valid', async () => {
    const concrete = (expr: string) =>
      expr.replaceAll('$__rate_interval', '4m').replaceAll('$job', 'svc').replaceAll('$instance', '.*')
    const recorded = charted.map((expr, n) => ({ record: `panel:${n}`, expr: concrete(expr) }))
    const file = join(await temporaryFolder(), 'dashboard.yml')
    writeFileSync(file, JSON.stringify({ groups: [{ name: 'dashboard', rules: recorded }] }))
    expect(await run('check', 'rules', file)).toBe('fine')
  })
})
