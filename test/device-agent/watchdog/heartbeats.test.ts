import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { fetchTransport } from '../../../src/core/client.ts'
import { commandHistory } from '../../../src/device-agent/commands/history.ts'
import { agentClient } from '../../../src/device-agent/connection.ts'
import type { AgentEvent } from '../../../src/device-agent/events.ts'
import { settingsStore } from '../../../src/device-agent/settings.ts'
import { identityStore } from '../../../src/device-agent/state.ts'
import type { Offer } from '../../../src/device-agent/update/offer.ts'
import { type WatchdogHeartbeats, watchdogHeartbeats } from '../../../src/device-agent/watchdog/heartbeats.ts'
import { agentId, agreeable, beat, identityAt, standIn, stored, watchdogAuthToken } from '../stand-in.ts'

let stateDir: string
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'svc-pulse-'))
})
afterEach(() => rmSync(stateDir, { recursive: true, force: true }))

/** Advances the clock by this many minutes; `each` is called every minute. */
async function live(
  url: string,
  minutes: number,
  each: (heartbeats: WatchdogHeartbeats, minute: number) => void,
  token = true,
) {
  identityStore(stateDir).save({
    ...identityAt(url),
    ...(token && { watchdogAuthToken }),
  })
  const stop = new AbortController()
  const upgrades: Offer[] = []
  const events: AgentEvent[] = []
  let minute = 0
  const heartbeats: WatchdogHeartbeats = watchdogHeartbeats({
    identity: identityStore(stateDir),
    settings: settingsStore(stateDir),
    commands: commandHistory(join(stateDir, 'watchdog-commands.json')),
    connect: (authToken) =>
      agentClient({ url, version: '1.0.0', transport: fetchTransport, signal: stop.signal }, authToken),
    report: (event) => void events.push(event),
    version: '1.0.0',
    signal: stop.signal,
    upgrade: (offer) => upgrades.push(offer),
    clock: {
      now: () => minute * 60_000,
      async sleep(ms) {
        minute += ms / 60_000
        if (minute > minutes) return stop.abort()
        each(heartbeats, minute)
      },
    },
  })
  await heartbeats.run()
  return { upgrades, events }
}
const alive = (heartbeats: number) => ({ said: 'alive', version: '1.2.0', heartbeats, interval: 60 }) as const

describe('the heartbeats of a watchdog', () => {
  test('are sent every five minutes with its own token, and report the version of the agent', async () => {
    await using service = await standIn()
    await live(service.url, 16, (heartbeats, minute) => heartbeats.heard(alive(minute)))
    expect(service.received.map(({ path, headers, body }) => [path, headers.authorization, body])).toEqual(
      Array(3).fill([
        `/api/v1/agents/${agentId}/heartbeat`,
        `Bearer ${watchdogAuthToken}`,
        {
          status: 'ok',
          agentVersion: '1.2.0',
          role: 'watchdog',
          watchdogVersion: '1.0.0',
          mainSilentSince: null,
        },
      ]),
    )
  })

  test('are sent every minute once the agent was silent for five, with the time since when', async () => {
    await using service = await standIn()
    await live(service.url, 12, (heartbeats, minute) => heartbeats.heard(alive(Math.min(minute, 3))))
    const silent = service.received.filter(({ body }) => body.mainSilentSince !== null)
    expect(service.received.length - silent.length).toBe(1)
    expect(silent.length).toBe(4)
    expect(silent[0]!.body.status).toBe('error')
    const since = silent.map(({ body }) => Date.parse(String(body.mainSilentSince)))
    expect(Date.now() - since[0]!).toBeGreaterThan(5.9 * 60_000)
  })

  test('do not report an agent as silent whose heartbeat interval is longer', async () => {
    await using service = await standIn()
    await live(service.url, 60, (heartbeats, minute) =>
      heartbeats.heard({ ...alive(Math.floor(minute / 20)), interval: 1200 }),
    )
    expect(new Set(service.received.map(({ body }) => body.mainSilentSince))).toEqual(new Set([null]))
  })

  test('carry out commands and updates while the agent cannot', async () => {
    const id = '0198c0de-0000-7000-8000-000000000101'
    const commands = [{ id, type: 'set_auto_update', payload: { enabled: false } }]
    await using service = await standIn((request) =>
      request.path.endsWith('/result')
        ? stored
        : {
            status: 200,
            body: { ...(beat as { body: object }).body, commands, upgradeTo: '2.0.0', rollback: true },
          },
    )
    const { upgrades } = await live(service.url, 6, () => {})
    expect(upgrades).toContainEqual({ version: '2.0.0', isRollback: true })
    expect(settingsStore(stateDir).load().autoUpdate).toBe(false)
    await vi.waitFor(() => expect(service.count(`/commands/${id}/result`)).toBeGreaterThan(0), {
      timeout: 30_000,
    })
    const resultSent = service.received.find(({ path }) => path.endsWith('/result'))!
    expect(resultSent.headers.authorization).toBe(`Bearer ${watchdogAuthToken}`)
    expect(resultSent.body).toMatchObject({ status: 'completed', result: { enabled: false } })
  })

  test('are not sent without a token, and survive a failing service', async () => {
    await using service = await standIn()
    await live(service.url, 30, () => {}, false)
    expect(service.received).toEqual([])
    await using broken = await standIn((request) =>
      request.path.endsWith('/heartbeat') ? 'cut' : agreeable(request),
    )
    const { events } = await live(broken.url, 12, () => {})
    expect(broken.count('/heartbeat')).toBeGreaterThan(3)
    // The agent says so itself.
    expect(events).toEqual([])
  })

  test('report a failure of this machine, and go on', async () => {
    await using service = await standIn()
    const { file } = identityStore(stateDir)
    const { events } = await live(service.url, 16, (heartbeats, minute) => {
      heartbeats.heard(alive(minute))
      chmodSync(file, minute < 8 ? 0o644 : 0o600)
    })
    expect(events).toEqual([
      {
        event: 'failed',
        step: 'watchdog',
        code: 'invalid_request',
        message: expect.stringContaining(`chmod 600 ${file}`),
        failures: 1,
        retryInSeconds: 300,
      },
    ])
    expect(service.count('/heartbeat')).toBe(2)
  })
})
