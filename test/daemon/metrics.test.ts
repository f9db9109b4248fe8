import { describe, expect, it } from 'vitest'
import { RequestWatch } from '../../daemon/request-watch.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase } from '../databases.ts'
import { receiver } from '../webhooks/receiver.ts'
import { stage } from '../webhooks/webhook-stage.ts'
import { until } from './process.ts'

describe('the requests that a process has answered', () => {
  it('are counted by status, and each in all buckets that it fits in', () => {
    const watch = new RequestWatch()
    watch.add('sites.list', 200, 5)
    watch.add('sites.list', 200, 5.1)
    watch.add('sites.list', 403, 60_000)
    const [requests, times] = watch.metrics()
    expect(requests!.values).toEqual([
      { labels: { route: 'sites.list', status: '200' }, value: 2 },
      { labels: { route: 'sites.list', status: '403' }, value: 1 },
    ])
    const values = times!.values.map(({ suffix, labels, value }) => [suffix, labels?.le, value])
    expect(values.slice(0, 3)).toEqual([
      ['_bucket', '0.005', 1],
      ['_bucket', '0.01', 2],
      ['_bucket', '0.025', 2],
    ])
    expect(values.slice(-4)).toEqual([
      ['_bucket', '10', 2],
      ['_bucket', '+Inf', 3],
      ['_sum', undefined, expect.closeTo(60.0101)],
      ['_count', undefined, 3],
    ])
  })
})

describe.skipIf(!hasOpenssl)('GET /metrics', () => {
  const certificate = testCertificate()
  onEveryDatabase((_, open) => {
    it('tells of requests and of deliveries, by how they ended', async () => {
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
          'svc_http_request_duration_seconds_bucket{route="webhooks.create",le="+Inf"} 2',
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
