import { mkdirSync, readFileSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { api } from '../../src/api.ts'
import { devicePublicKey } from '../../src/core/device-key.ts'
import { identityStore } from '../../src/device-agent/state.ts'
import { backupOf, emptyPlace, kinds, restored } from '../daemon/backup/filled.ts'
import { serviceOn } from '../harness.ts'
import { buildWorld } from '../world.ts'
import { livingAgents } from './live.ts'
import { agentId, agreeable, beat, identityAt, refusal, standIn } from './stand-in.ts'

const { live, stateDir } = livingAgents()
const day = 86_400_000

describe.each(kinds)('an agent of a service on %s that is restored from an older backup', (kind) => {
  test('comes back by itself, and one without a key does not', async () => {
    let now = new Date()
    const clock = () => now.toISOString()
    const place = await emptyPlace(kind)
    const service = await serviceOn(place, { clock })
    const { tokens, orgs } = await buildWorld(service)
    const { key } = await service
      .client(tokens.bakery)
      .call(api.enrollmentKeys.create, { body: { orgId: orgs.bakery.id, name: 'Agents' } })
    const once = { key: async () => key, pace: { once: true } }
    const identity = identityStore(stateDir())
    expect((await live(service.url, once)).names).toContain('enrolled')
    const { deviceId, proof } = identity.load()!
    expect(statSync(identity.file).mode & 0o777).toBe(0o600)
    const row = service.storage.read.selectFrom('agent_keys').selectAll().where('device_id', '=', deviceId)
    expect(await row.execute()).toMatchObject([{ public_key: devicePublicKey(proof!.privateKey) }])
    const { file } = await backupOf(place)

    now = new Date(now.getTime() + 31 * day)
    expect((await live(service.url, once)).names).toContain('token')
    await service.close()
    const rotated = identity.load()!
    expect(rotated.proof).toEqual(proof)

    const again = await emptyPlace(kind)
    await restored(again, file)
    const revived = await serviceOn(again)
    const url = revived.url
    identity.save({ ...rotated, proof: undefined })
    expect((await live(url, once)).failure).toMatchObject({ code: 'invalid_agent_credentials' })
    identity.save(rotated)
    const { failure, names } = await live(url, once)
    expect(failure).toBeUndefined()
    expect(names).toEqual(expect.arrayContaining(['token', 'heartbeat']))
    const back = identity.load()!
    expect([back.deviceId, back.staged]).toEqual([deviceId, undefined])
    expect(back.authToken).not.toBe(rotated.authToken)
    expect((await live(url, once)).names).not.toContain('token')
  })
})

describe.each(kinds)('an agent that enrolled after the backup from which %s is restored', (kind) => {
  test('is told what to do, and enrolls again as one device with the key that it had', async () => {
    const place = await emptyPlace(kind)
    const service = await serviceOn(place)
    const { tokens, orgs } = await buildWorld(service)
    // For one machine: its use is lost with the time since the backup.
    const { key } = await service
      .client(tokens.bakery)
      .call(api.enrollmentKeys.create, { body: { orgId: orgs.bakery.id, name: 'A till', maxUsage: 1 } })
    const { file } = await backupOf(place)
    const once = { key: async () => key, pace: { once: true } }
    const identity = identityStore(stateDir())
    expect((await live(service.url, once)).names).toContain('enrolled')
    const { deviceId: lost } = identity.load()!
    await service.close()

    const again = await emptyPlace(kind)
    await restored(again, file)
    const revived = await serviceOn(again)
    const refused = await live(revived.url, once)
    expect(refused.failure).toMatchObject({ status: 401, code: 'invalid_agent_credentials' })
    expect(refused.failure.message).toBe(
      `Invalid agent credentials: the service no longer accepts this machine; to enroll it again, remove ${identity.file} and start the agent with an enrollment key`,
    )
    // What it says.
    rmSync(identity.file)
    const { failure, names } = await live(revived.url, once)
    expect(failure).toBeUndefined()
    expect(names).toEqual(expect.arrayContaining(['enrolled', 'heartbeat']))
    const { deviceId } = identity.load()!
    const { read } = revived.storage
    const { hostname } = await read
      .selectFrom('devices')
      .select('hostname')
      .where('id', '=', deviceId)
      .executeTakeFirstOrThrow()
    const namesakes = read.selectFrom('devices').select('id').where('hostname', '=', hostname)
    expect(await namesakes.execute()).toEqual([{ id: deviceId }])
    expect(deviceId).not.toBe(lost)
    // Nobody has to ask whether it replaces another one.
    const replaced = read.selectFrom('alerts').select('id').where('device_id', '=', deviceId)
    expect(await replaced.execute()).toEqual([])
    expect((await live(revived.url, once)).names).not.toContain('enrolled')
  })
})

test('an agent of before makes its key on disk first, and registers it once', async () => {
  const serviceKey = devicePublicKey(
    '-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n',
  )
  const onDisk: (string | undefined)[] = []
  await using service = await standIn((request) => {
    if (!request.path.endsWith('/key')) return agreeable(request)
    onDisk.push(identityStore(stateDir()).load()?.proof?.privateKey)
    return { status: 200, body: { serviceKey } }
  })
  identityStore(stateDir()).save(identityAt(service.url))
  await live(service.url, { seconds: 300 })
  expect(service.count('/key')).toBe(1)
  const { proof } = identityStore(stateDir()).load()!
  expect(proof).toEqual({ privateKey: onDisk[0], service: serviceKey })
  const { body, headers } = service.received.find(({ path }) => path.endsWith('/key'))!
  expect(body).toEqual({ publicKey: devicePublicKey(proof!.privateKey) })
  expect(headers.authorization).toMatch(/^Bearer svc_/)
  expect(readFileSync(join(stateDir(), 'identity.json'), 'utf8')).toContain('PRIVATE KEY')
})

test('a key that cannot be stored is not registered yet: the agent says why, and tries again', async () => {
  await using service = await standIn((request) =>
    request.path.endsWith('/key') ? { status: 200, body: { serviceKey: 'a-key' } } : agreeable(request),
  )
  const identity = identityStore(stateDir())
  identity.save(identityAt(service.url))
  // In the place of the draft of the file, as a disk that refuses it.
  mkdirSync(`${identity.file}.new`)
  let beats = 0
  const readMetrics = async () => {
    beats += 1
    if (beats === 6) rmdirSync(`${identity.file}.new`)
    return {}
  }
  const { events } = await live(service.url, { seconds: 900, machine: { readMetrics } })
  const failures = events.filter((event) => event.event === 'failed')
  expect(failures.map(({ step, code, failures }) => [step, code, failures])).toEqual([
    ['key', 'not_stored', 1],
    ['key', 'not_stored', 2],
    ['key', 'not_stored', 3],
  ])
  expect(failures[0]!.message).toContain(identity.file)
  expect(service.count('/key')).toBe(1)
  expect(identity.load()!.proof?.service).toBe('a-key')
})

test.each([404, 409])('a service that answers %i to the key gets heartbeats all the same', async (status) => {
  await using service = await standIn((request) =>
    request.path.endsWith('/key') ? refusal(status, 'not_found') : agreeable(request),
  )
  identityStore(stateDir()).save(identityAt(service.url))
  const { stopped, names } = await live(service.url, { seconds: 600 })
  expect(stopped).toBe(true)
  expect(names.filter((one) => one === 'heartbeat').length).toBeGreaterThan(5)
  expect(names).not.toContain('failed')
  expect(service.count('/key')).toBe(1)
})

test('an agent whose proof is not taken now tries again, and ends when it is refused', async () => {
  const answers = [refusal(429, 'rate_limited'), refusal(401, 'agent_challenge_invalid')]
  await using service = await standIn((request) => {
    if (request.path.endsWith('/challenge')) return { status: 200, body: { challenge: 'a.b.c' } }
    if (request.path.endsWith('/recover-token'))
      return answers.shift() ?? refusal(401, 'invalid_agent_credentials')
    return request.path.endsWith('/heartbeat') ? refusal(401, 'invalid_agent_credentials') : beat
  })
  await using enrolling = await standIn((request) =>
    request.path.endsWith('/key')
      ? { status: 200, body: { serviceKey: `${'A'.repeat(43)}=` } }
      : agreeable(request),
  )
  await live(enrolling.url, { pace: { once: true } })
  const { failure, names } = await live(service.url, { seconds: 600 })
  expect(names.filter((one) => one === 'failed')).toHaveLength(2)
  expect(failure).toMatchObject({ code: 'invalid_agent_credentials' })
  expect(service.count(`/agents/${agentId}/recover-token`)).toBe(3)
})

/** A service at which another machine with the same key has recovered before each second heartbeat. */
function standInOfTwo() {
  let beats = 0
  return standIn((request) => {
    if (request.path.endsWith('/challenge')) return { status: 200, body: { challenge: 'a.b.c' } }
    if (request.path.endsWith('/recover-token'))
      return {
        status: 200,
        body: { authToken: `svc_${'c'.repeat(64)}`, watchdogAuthToken: `svc_${'d'.repeat(64)}` },
      }
    if (request.path.endsWith('/key')) return { status: 200, body: { serviceKey: `${'A'.repeat(43)}=` } }
    if (request.path.endsWith('/heartbeat') && ++beats > 1 && beats % 2 === 0)
      return refusal(401, 'invalid_agent_credentials')
    return agreeable(request)
  })
}

test('a copy of a machine ends instead of taking the token from the other one again and again', async () => {
  await using service = await standInOfTwo()
  identityStore(stateDir()).save(identityAt(service.url))
  const { failure } = await live(service.url, { seconds: 600 })
  expect(failure).toMatchObject({
    code: 'machine_copied',
    message: expect.stringMatching(/on one of the two, remove .*identity\.json/),
  })
  expect(service.count('/recover-token')).toBe(1)
})

test('a copy of a machine that is started again takes the token once an hour', async () => {
  await using service = await standInOfTwo()
  const identity = identityStore(stateDir())
  identity.save(identityAt(service.url))
  const copied = { failure: expect.objectContaining({ code: 'machine_copied' }) }
  // systemd starts it again each time.
  for (let starts = 0; starts < 4; starts++)
    expect(await live(service.url, { seconds: 600 })).toMatchObject(copied)
  expect(service.count('/recover-token')).toBe(1)
  const { proof, ...rest } = identity.load()!
  const ago = (ms: number) => new Date(Date.now() - ms).toISOString()
  identity.save({ ...rest, proof: { ...proof!, recoveredAt: ago(61 * 60_000) } })
  for (let starts = 0; starts < 2; starts++)
    expect(await live(service.url, { seconds: 600 })).toMatchObject(copied)
  expect(service.count('/recover-token')).toBe(2)
  // By a clock that was set back an hour more has to pass, and no more.
  identity.save({ ...identity.load()!, proof: { ...proof!, recoveredAt: ago(-86_400_000) } })
  expect(await live(service.url, { seconds: 600 })).toMatchObject(copied)
  expect(service.count('/recover-token')).toBe(2)
})
