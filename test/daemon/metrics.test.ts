import { once } from 'node:events'
import { Gauge, Registry } from 'prom-client'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { WebSocket } from 'ws'
import { metricsReader, observeRequests } from '../../daemon/metrics.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { metricsToken, scrapedValues } from '../metric-values.ts'
import { receiver } from '../webhooks/receiver.ts'
import { stage } from '../webhooks/webhook-fixture.ts'
import { buildWorld } from '../world.ts'
import { until } from './process.ts'
import { send } from './request.ts'

it('requests are counted by status, and in every bucket they fit in', async () => {
  const registry = new Registry()
  const onRequest = observeRequests(registry)
  onRequest('sites.list', 200, 5)
  onRequest('sites.list', 200, 5.1)
  onRequest('sites.list', 403, 60_000)
  const lines = (await registry.metrics()).split('\n')
  expect(lines).toEqual(
    expect.arrayContaining([
      'svc_http_requests_total{route="sites.list",status="200"} 2',
      'svc_http_requests_total{route="sites.list",status="403"} 1',
      'svc_http_request_duration_seconds_bucket{le="0.005",route="sites.list"} 1',
      'svc_http_request_duration_seconds_bucket{le="0.01",route="sites.list"} 2',
      'svc_http_request_duration_seconds_bucket{le="10",route="sites.list"} 2',
      'svc_http_request_duration_seconds_bucket{le="+Inf",route="sites.list"} 3',
      'svc_http_request_duration_seconds_count{route="sites.list"} 3',
    ]),
  )
})

describe('metrics of the database', () => {
  /** A reader of one group, whose refresh a test controls. */
  function reader(keepMs: number) {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
    const registry = new Registry()
    const gauge = new Gauge({ name: 'stored', help: 'x', registers: [registry] })
    const group = { refreshes: 0, errors: 0, work: async () => {} }
    const refresh = async () => {
      group.refreshes += 1
      const value = group.refreshes
      await group.work()
      gauge.set(value)
    }
    const read = metricsReader(new Registry(), [{ registry, refresh, keepMs }], () => {
      group.errors += 1
    })
    const scrape = async () => {
      const text = read()
      await vi.advanceTimersByTimeAsync(3000)
      const lines = (await text).split('\n')
      const valueNamed = (name: string) => lines.find((line) => line.startsWith(`${name} `))?.split(' ')[1]
      return [valueNamed('stored'), valueNamed('svc_metrics_lacking')]
    }
    return { group, scrape }
  }

  it('are read again once they are older than they are kept', async () => {
    const { scrape } = reader(10_000)
    expect(await scrape()).toEqual(['1', '0'])
    expect(await scrape()).toEqual(['1', '0'])
    await vi.advanceTimersByTimeAsync(4000)
    expect(await scrape()).toEqual(['2', '0'])
  })

  it('are read at each scrape when they are not kept', async () => {
    const { scrape } = reader(0)
    expect(await scrape()).toEqual(['1', '0'])
    expect(await scrape()).toEqual(['2', '0'])
  })

  it('are the previous ones while a read is late, and are left out when it stays late', async () => {
    const { group, scrape } = reader(10_000)
    expect(await scrape()).toEqual(['1', '0'])
    await vi.advanceTimersByTimeAsync(7000)
    const late = Promise.withResolvers<void>()
    group.work = () => late.promise
    expect(await scrape()).toEqual(['1', '0'])
    await vi.advanceTimersByTimeAsync(10_000)
    expect(await scrape()).toEqual([undefined, '1'])
    expect(group.refreshes).toBe(2)
    late.resolve()
    expect(await scrape()).toEqual(['2', '0'])
    expect(group.errors).toBe(0)
  })
})

onEveryDatabase((_, open) => {
  it('heartbeats are counted by how they come, and connected agents', async () => {
    const service = await startService(open, { env: { METRICS_TOKEN: metricsToken } })
    const { orgs } = await buildWorld(service)
    const { agentId, agentToken } = orgs.bakery
    const beat = () =>
      send(service.url, 'POST', `/api/v1/agents/${agentId}/heartbeat`, {
        token: agentToken,
        body: { status: 'ok', agentVersion: '1.0.0' },
      })
    const before = await scrapedValues(service.url, 'svc_agent_heartbeats_total')
    expect((await beat()).status).toBe(200)
    expect((await beat()).status).toBe(200)
    expect(await scrapedValues(service.url, 'svc_agent_connections')).toEqual({ '': 0 })
    const socket = new WebSocket(`${service.url.replace('http', 'ws')}/api/v1/agent-ws/${agentId}/ws`, {
      headers: { authorization: `Bearer ${agentToken}` },
    })
    onTestFinished(() => socket.terminate())
    await once(socket, 'message')
    expect(await scrapedValues(service.url, 'svc_agent_connections')).toEqual({ '': 1 })
    expect(await scrapedValues(service.url, 'svc_agent_heartbeats_total')).toEqual({
      http: before.http! + 2,
      websocket: before.websocket! + 1,
    })
  })
})

describe.skipIf(!hasOpenssl)('GET /metrics', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    it('counts requests and webhook attempts by outcome', async () => {
      const token = 'a token for metrics'
      const { service, hook, raise, untilAll } = await stage(open, certificate, {
        env: { METRICS_TOKEN: token },
      })
      const well = await hook((await receiver(certificate)).url)
      const ill = await hook((await receiver(certificate, () => ({ status: 503 }))).url)
      await raise(1)
      await untilAll(well, 1, ({ status }) => status === 'delivered')
      await untilAll(ill, 1, ({ status }) => status === 'retrying')
      await fetch(`${service.url}/api/v1/nowhere`)
      const read = async () => {
        const headers = { authorization: `Bearer ${token}` }
        return (await (await fetch(`${service.url}/metrics`, { headers })).text()).split('\n')
      }
      await until(async () => {
        const lines = await read()
        // It may have been tried again meanwhile.
        if (!lines.some((line) => /^svc_webhook_attempts_total\{result="5xx"\} [1-9]/.test(line)))
          return false
        return [
          'svc_http_requests_total{route="webhooks.create",status="201"} 2',
          'svc_http_request_duration_seconds_bucket{le="+Inf",route="webhooks.create"} 2',
          'svc_http_request_duration_seconds_count{route="webhooks.create"} 2',
          '# TYPE svc_http_request_duration_seconds histogram',
          'svc_webhook_attempts_total{result="delivered"} 1',
          'svc_webhook_deliveries_ended_total{status="delivered"} 1',
          'svc_webhook_deliveries_ended_total{status="failed"} 0',
        ].every((line) => lines.includes(line))
      }, 10_000)
      expect((await read()).filter((line) => line.includes('status="404"'))).toEqual([])
    })
  })
})
