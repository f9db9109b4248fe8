import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Registry } from 'prom-client'
import { describe, expect, it, vi } from 'vitest'
import { openSdk } from '../../daemon/tracing/sdk.ts'
import { readTracingSettings } from '../../daemon/tracing/settings.ts'
import { api } from '../../src/api.ts'
import { emit } from '../../src/events/outbox.ts'
import { hasOpenssl, testCertificate } from '../cli/network.ts'
import { onEveryDatabase, openMigrated, temporaryFolder } from '../databases.ts'
import { serviceOn, startService } from '../harness.ts'
import { metricValues } from '../metric-values.ts'
import { receiver } from '../webhooks/receiver.ts'
import { handOn, stage } from '../webhooks/webhook-fixture.ts'
import { systemToken } from '../world.ts'
import { collector } from './collector.ts'
import { failedStart, ServeProcess, serviceEnv, until } from './process.ts'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string }

/** W3C Trace Context: the trace 4bf9… of somebody else, which is sampled. */
const foreign = { traceId: '4bf92f3577b34da6a3ce929d0e0e4736', spanId: '00f067aa0ba902b7' }
const traceparent = `00-${foreign.traceId}-${foreign.spanId}-01`

const health = (url: string, headers: Record<string, string> = {}) =>
  fetch(`${url}/api/v1/health`, { headers })
const healthSpan = 'GET /api/v1/health'

describe.skipIf(!hasOpenssl)('traces', () => {
  const certificate = testCertificate()

  onEveryDatabase((kind, open) => {
    it('lead from a request to its statements and its event, and from the event to its delivery', async () => {
      const to = await collector()
      const { service, client, orgId, hook, raise } = await stage(open, certificate, { env: to.env })
      const receiving = await receiver(certificate)
      const webhookId = await hook(receiving.url)
      const [eventId] = await raise(1)
      await receiving.until(1)
      const delivered = await to.span('deliver patch.installed')
      const fannedOut = await to.span('fan out patch.installed')
      const published = await to.span('publish patch.installed')
      const request = await to.span('POST /api/v1/events')

      const traceId = eventId!.replaceAll('-', '')
      expect([published, fannedOut, delivered].map((span) => span.traceId)).toEqual([
        traceId,
        traceId,
        traceId,
      ])
      expect(published.parentSpanId).toBeUndefined()
      expect([fannedOut, delivered].map((span) => span.parentSpanId)).toEqual([
        published.spanId,
        published.spanId,
      ])
      expect(request.traceId).not.toBe(traceId)
      expect(published.links).toMatchObject([{ traceId: request.traceId, spanId: request.spanId }])
      expect(request.links).toMatchObject([{ traceId, spanId: published.spanId }])
      expect(delivered.attributes).toMatchObject({
        'svc.event.id': eventId,
        'svc.org.id': orgId,
        'svc.webhook.id': webhookId,
        'svc.webhook.attempt': 1,
        'http.response.status_code': 204,
      })
      expect(fannedOut.attributes).toMatchObject({ 'svc.webhook.deliveries': 1 })

      expect(request).toMatchObject({
        kind: 2,
        attributes: {
          'http.request.method': 'POST',
          'http.route': '/api/v1/events',
          'http.response.status_code': 202,
          'svc.caller.kind': 'user',
          'svc.request.id': expect.any(String),
        },
      })
      const { data } = await client.call(api.auditLogs.list, { query: { action: 'event.create' } })
      expect(data.map(({ id }) => ({ 'svc.audit.id': id }))).toEqual(
        request.events?.map(({ attributes }) =>
          Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue])),
        ),
      )
      const statements = to.spans.filter(({ parentSpanId }) => parentSpanId === request.spanId)
      expect(statements.map(({ name }) => name)).toContain('insert events')
      for (const { attributes, traceId: own, kind: client } of statements) {
        expect([own, client]).toEqual([request.traceId, 3])
        expect(attributes).toMatchObject({
          'db.system.name': { sqlite: 'sqlite', postgres: 'postgresql' }[kind],
          'db.operation.name': expect.any(String),
        })
      }
      expect(request.attributes['svc.statements']).toBe(statements.length)
      // What a whole batch of writes does belongs to nobody.
      if (kind === 'sqlite') expect(to.named('commit')).toEqual([])
      else expect(statements.map(({ name }) => name)).toContain('commit')
      expect(to.resources[0]).toMatchObject({ 'service.name': 'svc', 'service.version': version })

      // An event that no request causes has a trace as well, without a link.
      const own = await service.storage.write((tx) =>
        emit(tx, { orgId, type: 'patch.installed', data: {} }, new Date().toISOString()),
      )
      await receiving.until(2)
      const ofOwn = () => to.spans.filter((span) => span.traceId === own.replaceAll('-', ''))
      await until(() => ofOwn().length === 3, 15_000)
      const [first] = ofOwn().filter(({ name }) => name === 'publish patch.installed')
      expect([first?.parentSpanId, first?.links ?? []]).toEqual([undefined, []])
    })

    it('of an event are continued by another process, by the id of its row', async () => {
      const first = await collector()
      const { service, token, orgId, hook, raise } = await stage(open, certificate, { env: first.env })
      const receiving = await receiver(certificate)
      const id = await hook(receiving.url)
      await service.client(token).call(api.webhooks.update, { params: { id }, body: { status: 'paused' } })
      const [eventId] = await raise(1)
      const { spanId } = await first.span('publish patch.installed')
      await first.span('fan out patch.installed')
      await service.close()
      expect(receiving.got).toEqual([])

      const second = await collector()
      const next = await serviceOn(service, {
        env: { ...second.env, OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8', OUTBOUND_CA_FILE: certificate.file },
      })
      const hand = handOn(next.client(await systemToken(next)), orgId)
      await hand.client.call(api.webhooks.update, { params: { id }, body: { status: 'active' } })
      await hand.client.call(api.webhookDeliveries.replay, { params: { id }, body: {} })
      await receiving.until(1)
      expect(await second.span('deliver patch.installed')).toMatchObject({
        traceId: eventId!.replaceAll('-', ''),
        parentSpanId: spanId,
      })
      expect(second.named('publish patch.installed')).toEqual([])
    })

    it('have no secret, token, name or address of a tenant or a person', async () => {
      const to = await collector()
      const { service, token, client, orgId, hook } = await stage(open, certificate, {
        env: { ...to.env, OTEL_EXPORTER_OTLP_HEADERS: 'api-key=planted-collector-key' },
      })
      const receiving = await receiver(certificate, () => ({ status: 500, body: 'planted-answer' }))
      const secret = 'planted-secret-of-the-webhook-0123456789'
      await hook(`${receiving.url}/planted-path?token=planted-query`, {
        name: 'planted-webhook',
        secret,
        headers: [{ key: 'x-planted-header', value: 'planted-header-value' }],
      })
      await client.call(api.events.create, {
        body: { orgId, type: 'patch.installed', data: { planted: 'planted-data' } },
      })
      const email = 'planted.person@example.com'
      const planted = {
        'user-agent': 'planted-agent',
        'x-forwarded-for': '203.0.113.77',
        tracestate: 'planted=1',
        baggage: 'planted=baggage',
      }
      const asked = (path: string, init: RequestInit = {}) =>
        fetch(`${service.url}/api/v1${path}`, {
          ...init,
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', ...planted },
        })
      await asked('/auth/login', {
        method: 'POST',
        body: JSON.stringify({ email, password: 'planted-password' }),
      })
      await asked(`/search?q=planted-search&orgId=${orgId}`)
      await asked('/devices/planted-id')
      await asked('/planted-route')
      await asked('/orgs/partners', {
        method: 'POST',
        body: JSON.stringify({ name: 'planted-partner', slug: 'planted-slug' }),
      })
      await to.span('GET /api/v1/search')
      await to.span('POST /api/v1/orgs/partners')
      expect((await to.span('deliver patch.installed')).attributes).toMatchObject({ 'error.type': '5xx' })
      await service.close()

      expect(to.requests[0]?.headers['api-key']).toBe('planted-collector-key')
      const text = to.requests.map((one) => one.text).join()
      expect(to.spans.length).toBeGreaterThan(50)
      for (const word of ['planted', email, 'Acme', 'Bakery', '203.0.113.77', token, '127.0.0.1', 'admin@']) {
        expect(text.includes(word), word).toBe(false)
      }
    })
  })
})

describe('the traceparent of a caller', () => {
  const answered = async (mode: string | undefined) => {
    const to = await collector()
    const service = await startService(() => openMigrated('sqlite'), {
      env: { ...to.env, ...(mode !== undefined && { CALLER_TRACEPARENT: mode }) },
    })
    await health(service.url, { traceparent })
    return to.span(healthSpan)
  }

  it('is a link, unless it is to be ignored, or trusted as the parent', async () => {
    const linked = await answered(undefined)
    expect(linked.links).toMatchObject([foreign])
    expect(linked.traceId).not.toBe(foreign.traceId)
    const ignoring = await answered('ignore')
    expect([ignoring.links ?? [], ignoring.traceId === foreign.traceId]).toEqual([[], false])
    const trusting = await answered('parent')
    expect(trusting).toMatchObject({ traceId: foreign.traceId, parentSpanId: foreign.spanId })
  })

  it('does not decide whether a trace is kept, unless it is trusted; one that is malformed does nothing', async () => {
    const to = await collector()
    const env = { ...to.env, OTEL_TRACES_SAMPLER: 'parentbased_always_off' }
    const service = await startService(() => openMigrated('sqlite'), { env })
    await health(service.url, { traceparent })
    await service.close()
    expect(to.spans).toEqual([])
    const trusting = await startService(() => openMigrated('sqlite'), {
      env: { ...env, CALLER_TRACEPARENT: 'parent' },
    })
    for (const wrong of ['', '00-0-0-01', `00-${'0'.repeat(32)}-${foreign.spanId}-01`, 'x'.repeat(8000)]) {
      expect((await health(trusting.url, { traceparent: wrong })).status).toBe(200)
    }
    await health(trusting.url, { traceparent })
    await trusting.close()
    expect(to.spans.map(({ name }) => name)).toEqual([healthSpan])
  })
})

describe('the queue of spans', () => {
  const settings = (env: Record<string, string>) => readTracingSettings(env)!
  const request = { id: 'r', method: 'GET', path: '/x', status: 200, caller: undefined }

  it('drops what it has no room for, counts it, and warns once of a collector that refuses', async () => {
    const to = await collector((reply) => reply.writeHead(400).end('planted-answer'))
    const metrics = new Registry()
    const log = { warn: vi.fn(), info: vi.fn() }
    const env = { ...to.env, OTEL_BSP_MAX_QUEUE_SIZE: '8', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '4' }
    const tracing = openSdk(settings(env), 'sqlite', { log, metrics })
    const counts = () => metricValues(metrics, 'svc_trace_spans_total')
    for (let n = 0; n < 100; n++) tracing.request(undefined).end(request)
    // The first four leave at once; eight wait.
    expect(await counts()).toEqual({ exported: 0, queue_full: 88, export_failed: 0 })
    await until(async () => (await counts()).export_failed === 12, 15_000)
    expect(to.spans.length).toBe(12)
    expect(log.warn.mock.calls).toEqual([[{ reason: 'HTTP 400', failures: 1 }, 'traces cannot be exported']])
    await tracing.close()
  })

  it('ends within its time limit when the collector accepts a connection and never answers', async () => {
    const to = await collector(() => {})
    const tracing = openSdk(settings(to.env), 'sqlite', {
      log: { warn() {}, info() {} },
      metrics: new Registry(),
    })
    tracing.request(undefined).end(request)
    await until(() => to.spans.length === 1, 15_000)
    tracing.request(undefined).end(request)
    await tracing.close()
    expect(to.spans.length).toBe(2)
  })

  it('has at most a hundred statements of a request, and says how many there were', async () => {
    const to = await collector()
    const tracing = openSdk(settings(to.env), 'sqlite', {
      log: { warn() {}, info() {} },
      metrics: new Registry(),
    })
    const traced = tracing.request(undefined)
    for (let n = 0; n < 150; n++) traced.ran('select 1 from "users"', 1)
    traced.end(request)
    await tracing.close()
    expect(to.named('select users').length).toBe(100)
    expect((await to.span('GET /x')).attributes['svc.statements']).toBe(150)
  })

  it('has the same share of the traces of events in each process', async () => {
    const to = await collector()
    const env = { ...to.env, OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.5' }
    const process = () =>
      openSdk(settings(env), 'sqlite', { log: { warn() {}, info() {} }, metrics: new Registry() })
    const [publishing, fanning] = [process(), process()]
    const events = Array.from({ length: 200 }, (_, n) => ({
      id: `0199c0de-0000-7000-8000-${(n * 2654435761).toString(16).padStart(12, '0').slice(-12)}`,
      type: 'patch.installed',
      orgId: 'o',
    }))
    for (const event of events) publishing.background.published(event)
    fanning.fannedOut(
      events.map((event) => ({ ...event, deliveries: 1 })),
      Date.now(),
    )
    await Promise.all([publishing.close(), fanning.close()])
    const ids = (name: string) =>
      to
        .named(name)
        .map(({ traceId }) => traceId)
        .sort()
    expect(ids('publish patch.installed')).toEqual(ids('fan out patch.installed'))
    expect(ids('publish patch.installed').length).toBeGreaterThan(50)
    expect(ids('publish patch.installed').length).toBeLessThan(150)
  })
})

describe('svc serve', () => {
  /** The sources in a file of the build. */
  const contents = JSON.parse(readFileSync(join(root, 'dist', '.contents.json'), 'utf8')) as Record<
    string,
    { inputs: object }
  >
  const spy = `import { registerHooks } from 'node:module'
    registerHooks({ load(url, context, next) { process.stderr.write('loaded ' + url + '\\n'); return next(url, context) } })`

  async function served(env: Record<string, string>) {
    const { dataDir } = await openMigrated('sqlite')
    const NODE_OPTIONS = `--import data:text/javascript,${encodeURIComponent(spy)}`
    const service = new ServeProcess({ dataDir }, { env: { ...serviceEnv, NODE_OPTIONS, ...env } })
    await health(await service.listening(), { 'x-request-id': 'mine' })
    await until(() => service.stderr.includes('"requestId":"mine"'), 15_000)
    expect((await service.stop()).code).toBe(0)
    const files = [...service.stderr.matchAll(/^loaded \S*\/(dist\/\S+)$/gm)].map(([, file]) => file!)
    const sources = files.flatMap((file) => Object.keys(contents[file]?.inputs ?? {}))
    expect(sources).toContain('daemon/serve.ts')
    const line = service.stderr.split('\n').find((one) => one.includes('"requestId":"mine"'))!
    return { line: JSON.parse(line) as Record<string, unknown>, sources }
  }
  /** prom-client brings the interface of OpenTelemetry along, which does nothing. */
  const ofTracing = (path: string) =>
    path === 'daemon/tracing/sdk.ts' || /@opentelemetry\/(?!api\/dist\/.*\.cjs$)/.test(path)

  it('loads nothing of OpenTelemetry unless traces are configured', async () => {
    const { sources, line } = await served({})
    expect(sources.filter(ofTracing)).toEqual([])
    expect(line).not.toHaveProperty('trace_id')
  })

  it('writes the id of its trace into each line about a request, and sends spans before it ends', async () => {
    const to = await collector()
    const { sources, line } = await served({
      ...to.env,
      OTEL_BSP_SCHEDULE_DELAY: '60000',
      OTEL_SERVICE_NAME: 'svc-of-tests',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=night%20shift',
      OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    })
    expect(sources.filter(ofTracing)).toContain('daemon/tracing/sdk.ts')
    const [span] = to.named(healthSpan)
    expect(line.trace_id).toBe(span?.traceId)
    // The caller chose this one, and it could be a secret.
    expect(span?.attributes).not.toHaveProperty('svc.request.id')
    expect(to.requests.map(({ path }) => path)).toContain('/v1/traces')
    expect(to.resources[0]).toMatchObject({
      'service.name': 'svc-of-tests',
      'deployment.environment.name': 'night shift',
    })
  })

  it('refuses settings of OpenTelemetry that it cannot follow, and shows no secret of them', async () => {
    const to = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' }
    const wrong: [Record<string, string>, RegExp][] = [
      [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'localhost:4318' }, /OTEL_EXPORTER_OTLP_ENDPOINT must be an address/],
      [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a:s3cret@b' }, /OTEL_EXPORTER_OTLP_HEADERS/],
      [{ ...to, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /PROTOCOL must be one of http\/json, http\/protobuf/],
      [{ ...to, OTEL_EXPORTER_OTLP_HEADERS: 'a=1,s3cret' }, /pair 2 is not one/],
      [{ ...to, OTEL_EXPORTER_OTLP_HEADERS: 'a=s3cret%0a' }, /pair 1 is not one/],
      [{ ...to, OTEL_TRACES_SAMPLER: 'sometimes' }, /OTEL_TRACES_SAMPLER must be one of always_on/],
      [{ ...to, OTEL_TRACES_SAMPLER_ARG: '2' }, /OTEL_TRACES_SAMPLER_ARG must be a share/],
      [{ ...to, CALLER_TRACEPARENT: 'yes' }, /CALLER_TRACEPARENT must be one of ignore, link, parent/],
      [{ ...to, OTEL_EXPORTER_OTLP_CERTIFICATE: '/none' }, /OTEL_EXPORTER_OTLP_CERTIFICATE cannot be read/],
      [{ ...to, OTEL_BSP_MAX_QUEUE_SIZE: '4', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '5' }, /from 1 to 4/],
    ]
    for (const [env, message] of wrong) {
      expect(() => readTracingSettings(env)).toThrow(message)
      expect(() => readTracingSettings(env)).not.toThrow(/s3cret/)
    }
    const [env, message] = wrong[2]!
    expect(
      await failedStart({ dataDir: await temporaryFolder() }, { env: { ...serviceEnv, ...env } }),
    ).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(message),
    })
    for (const off of [{ OTEL_TRACES_EXPORTER: 'none' }, { OTEL_SDK_DISABLED: 'true' }]) {
      expect(readTracingSettings({ ...to, ...off })).toBeUndefined()
    }
    expect(
      readTracingSettings({ ...to, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://c.example.com/in?a=1' })?.url,
    ).toBe('https://c.example.com/in?a=1')
  })
})
