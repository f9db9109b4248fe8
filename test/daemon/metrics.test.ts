import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { observeRequests } from '../../daemon/metrics.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { receiver } from '../webhooks/receiver.ts'
import { stage } from '../webhooks/webhook-stage.ts'
import { until } from './process.ts'

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
        return [
          'svc_http_requests_total{route="webhooks.create",status="201"} 2',
          'svc_http_request_duration_seconds_bucket{le="+Inf",route="webhooks.create"} 2',
          'svc_http_request_duration_seconds_count{route="webhooks.create"} 2',
          '# TYPE svc_http_request_duration_seconds histogram',
          'svc_webhook_attempts_total{result="delivered"} 1',
          'svc_webhook_attempts_total{result="5xx"} 1',
        ].every((line) => lines.includes(line))
      }, 10_000)
      expect((await read()).filter((line) => line.includes('status="404"'))).toEqual([])
    })
  })
})
