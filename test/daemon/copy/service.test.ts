import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { temporaryFolder } from '../../databases.ts'
import { adminEmail, adminPassword, clientOf, testSecrets } from '../../harness.ts'
import { SvcProcess, svc } from '../backup/binary.ts'
import { emptyPlace, kinds, withStorage } from '../backup/filled.ts'
import { addLogs } from '../backup/many-rows.ts'
import { failedStart, ServeProcess, until } from '../process.ts'
import { machine, send } from '../request.ts'
import { Writers } from '../writers.ts'
import { placeOf } from './copies.ts'

const env = {
  ...testSecrets,
  SVC_ADMIN_EMAIL: adminEmail,
  SVC_ADMIN_PASSWORD: adminPassword,
  ENABLE_2FA: 'false',
  PUBLIC_URL: 'http://svc.example.com',
}
const who = { email: adminEmail, password: adminPassword }

async function populate(url: string) {
  const { tokens } = await clientOf(url).call(api.auth.login, { body: who })
  const token = tokens!.accessToken
  const client = clientOf(url, token)
  const { id: partnerId } = await client.call(api.partners.create, { body: { name: 'Acme', slug: 'acme' } })
  const org = { partnerId, name: 'Bakery', slug: 'bakery' }
  const { id: orgId } = await client.call(api.orgs.create, { body: org })
  const { key } = await client.call(api.enrollmentKeys.create, { body: { orgId, name: 'till', maxUsage: 5 } })
  const agent = await clientOf(url).call(api.agents.enroll, { body: machine(key, 'till-1') })
  const { key: apiKey } = await client.call(api.apiKeys.create, {
    body: { orgId, name: 'reader', scopes: ['devices:read'] },
  })
  return { token, orgId, agent, enrollmentKey: key, apiKey }
}

describe.each(kinds)('a service on %s that is copied', (kind) => {
  it('loses nothing that it confirmed, reads on, and goes on at the other place', {
    timeout: 240_000,
  }, async () => {
    const [from, to] = [await emptyPlace(kind), await emptyPlace(kind === 'sqlite' ? 'postgres' : 'sqlite')]
    const service = new ServeProcess(from, { env })
    const url = await service.listening()
    const made = await populate(url)
    const deviceId = made.agent.deviceId
    await withStorage(from, (storage) => addLogs(storage, { id: made.orgId, deviceId }, 20_000))
    const beat = (at: string) =>
      send(at, 'POST', `/api/v1/agents/${made.agent.agentId}/heartbeat`, {
        token: made.agent.authToken,
        body: { status: 'ok', agentVersion: '0.1.0' },
      })
    const pins = join(await temporaryFolder(), 'pins.json')
    const verified = (at: string) =>
      svc(['audit', 'verify', '--pin', pins], from, { SVC_URL: at, SVC_TOKEN: made.token })
    expect((await verified(url)).stdout).toMatch(/pinned without comparison/)

    const writers = new Writers(made.token, made.orgId)
    writers.begin(url)
    const args = ['db', 'copy', '--json', ...(to.databaseUrl === undefined ? ['--to', to.dataDir] : [])]
    const target: Record<string, string> =
      to.databaseUrl === undefined ? {} : { TARGET_DATABASE_URL: to.databaseUrl }
    const copy = new SvcProcess(args, from, { ...testSecrets, ...target })

    const write = () =>
      send<{ code: string; error: string }>(url, 'POST', '/api/v1/orgs/sites', {
        token: made.token,
        body: { orgId: made.orgId, name: 'late' },
      })
    const isRefused = async (kind: RegExp) => {
      const { status, body } = await write()
      return status === 503 && kind.test(body.error)
    }
    await until(() => isRefused(/in maintenance for a moment/), 60_000)
    const [refused, refusedBeat, health, ready, read, byKey] = await Promise.all([
      write(),
      beat(url),
      send<{ maintenance?: string }>(url, 'GET', '/health'),
      send<{ status: string; checks: Record<string, string> }>(url, 'GET', '/health/ready'),
      send(url, 'GET', '/api/v1/devices', { token: made.token }),
      send(url, 'GET', '/api/v1/devices', { headers: { 'x-api-key': made.apiKey } }),
    ])
    for (const { status, body, headers } of [refused, refusedBeat]) {
      expect([status, body]).toMatchObject([503, { code: 'maintenance', retryAfter: 5 }])
      expect(headers['retry-after']).toBe('5')
    }
    expect([read.status, byKey.status, ready.status]).toEqual([200, 200, 200])
    expect(health.body.maintenance).toMatch(/in maintenance/)
    expect(ready.body.checks.database).toMatch(/in maintenance/)

    const { code, stdout, stderr } = await copy.ended
    expect([code, stderr]).toEqual([0, ''])
    const summary = JSON.parse(stdout)
    await until(() => isRefused(/was moved to .* on \d{4}-/), 30_000)
    await writers.end()
    expect(writers.acknowledged.length).toBeGreaterThan(0)
    expect(writers.replies.filter(({ status }) => status !== 201 && status !== 503)).toEqual([])
    expect((await send(url, 'GET', '/health/ready')).status).toBe(503)
    expect((await send(url, 'GET', '/api/v1/devices', { token: made.token })).status).toBe(200)

    const next = placeOf(from, to)
    const other = new ServeProcess(next, { env })
    const otherUrl = await other.listening()
    expect(await writers.notOnce(otherUrl)).toEqual([])
    expect((await beat(otherUrl)).status).toBe(200)
    await clientOf(otherUrl).call(api.agents.enroll, { body: machine(made.enrollmentKey, 'till-2') })
    const { tokens } = await clientOf(otherUrl).call(api.auth.login, { body: who })
    // Sessions go along.
    expect((await send(otherUrl, 'GET', '/api/v1/devices', { token: made.token })).status).toBe(200)
    const { data } = await clientOf(otherUrl, tokens!.accessToken).call(api.auditLogs.list, {
      query: { action: 'database.copy' },
    })
    expect(data).toMatchObject([{ details: { target: summary.to } }])
    const later = await verified(otherUrl)
    expect([later.code, later.stdout]).toEqual([0, expect.stringMatching(/^(Sound: .*\n)+$/)])
    expect(later.stdout).not.toMatch(/without comparison/)
    expect(await readdir(join(next.dataDir, 'checkpoints'))).toContain('system')

    // Nothing of it is a failure, in the log neither.
    const lines = service.stderr.split('\n').filter((line) => line.startsWith('{'))
    const bad = lines.filter((line) => JSON.parse(line).level >= 50)
    expect(bad).toEqual([])
    expect(lines.filter((line) => JSON.parse(line).level >= 40).length).toBeLessThan(20)

    // On SQLite the running one holds the directory.
    if (kind === 'sqlite') await service.stop()
    expect((await failedStart(from, { env })).stderr).toMatch(/This database was moved to .* on .*--reopen/s)
    const { findings } = JSON.parse((await svc(['doctor', '--offline', '--json'], from, env)).stdout)
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: 'database',
        state: 'error',
        message: expect.stringMatching(/^This database was moved to .*, and takes no changes\.$/),
      }),
    )
    // Nobody can be asked whether the copy is in use.
    expect(await svc(['db', 'copy', '--reopen'], from)).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/Missing --yes/),
    })
    expect((await svc(['db', 'copy', '--reopen', '--yes'], from)).stdout).toMatch(/takes writes again/)
    if (kind === 'postgres') await until(async () => (await write()).status === 201, 30_000)
    else await new ServeProcess(from, { env }).listening()
    expect((await svc(['db', 'copy', '--reopen', '--yes'], from)).stderr).toMatch(/was not moved/)
  })
})
