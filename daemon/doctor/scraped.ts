import { type Finding, passed, pluralize, warning } from '../../src/core/finding.ts'
import type { Config } from '../config.ts'
import { probe } from './endpoint.ts'
import { attempt } from './network.ts'
import { ownUrl } from './readiness.ts'

/* What the running service has counted since it started; known with METRICS_TOKEN alone. */

export async function checkCounts(config: Config): Promise<Finding[]> {
  const { metricsToken } = config
  if (metricsToken === undefined) return []
  const seen = await attempt(() =>
    probe(ownUrl(config, '/metrics'), { authorization: `Bearer ${metricsToken}` }),
  )
  if (seen instanceof Error || seen.status !== 200) return []
  return [...limits(seen.body), ...slowStatements(seen.body)]
}

/** Counters of refusals, each by one label. */
const refusals = /^svc_(?:rate_limit|quota)_refusals_total\{(\w+)="(\w+)"[^}]*\} (\d+)/gm

function limits(metrics: string): Finding[] {
  const check = 'limits'
  const hit = [...metrics.matchAll(refusals)].filter(([, , , count]) => count !== '0')
  if (hit.length === 0) return [passed(check, 'None was reached since the service started')]
  const named = hit.map(
    ([, kind, name, count]) => `${kind === 'quota' ? 'quota' : 'limit'} ${name} ${count}×`,
  )
  return [
    warning(check, {
      message: `${pluralize(hit.length, 'limit')} reached since the service started: ${named.join(', ')}.`,
      reason: 'These requests were refused: of somebody who guesses, or of people who need more.',
      remedy: 'find the callers in the log; RATE_LIMIT_<NAME> and QUOTA_<NAME> raise a limit (svc-serve(8))',
    }),
  ]
}

const slow = /^svc_database_slow_statements_total\{operation="(\w*)",table="(\w*)"[^}]*\} (\d+)/gm
/** Fewer are those of a start, or of a busy moment. */
const minSlow = 10
const maxListed = 5

function slowStatements(metrics: string): Finding[] {
  const check = 'slow statements'
  const found = [...metrics.matchAll(slow)]
    .map(([, operation, table, count]) => ({ name: `${operation} ${table}`.trim(), count: Number(count) }))
    .sort((a, b) => b.count - a.count)
  const many = found.filter(({ count }) => count >= minSlow).slice(0, maxListed)
  if (many.length === 0) return [passed(check, 'Few took longer than 200 ms since the service started')]
  return [
    warning(check, {
      message: `Statements took longer than 200 ms: ${many.map(({ name, count }) => `${name} ${count}×`).join(', ')}.`,
      reason: 'Whoever causes them waits as long; on SQLite a write delays every other one.',
      remedy:
        'run the service with LOG_LEVEL=debug, which logs their text; compare it with database upkeep above',
    }),
  ]
}
