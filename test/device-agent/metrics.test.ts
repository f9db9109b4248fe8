import { readdirSync } from 'node:fs'
import os from 'node:os'
import { expect, test } from 'vitest'
import { Heartbeat } from '../../src/agents/contract.ts'
import { readActivity } from '../../src/device-agent/activity.ts'
import { startMetrics } from '../../src/device-agent/metrics.ts'

test('the metrics are of this machine and match the schema of the service', async () => {
  const metrics = await startMetrics()()
  expect(Math.abs(metrics.ramUsedMb! - (os.totalmem() - os.freemem()) / 2 ** 20)).toBeLessThan(2048)
  expect(metrics.diskPercent).toBeGreaterThan(0)
  expect(metrics.diskUsedGb).toBeGreaterThan(0)
  if (process.platform === 'linux') {
    const expected = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).length
    expect(Math.abs(metrics.processCount! - expected)).toBeLessThan(50)
  }
  const heartbeat = { status: 'ok', agentVersion: '1', metrics, ...(await readActivity()) } as const
  expect(Heartbeat.parse(heartbeat)).toEqual(heartbeat)
})

test('the CPU percentage rises with the load between two readings', async () => {
  const read = startMetrics()
  await read()
  const end = performance.now() + 400
  while (performance.now() < end) Math.sqrt(end)
  const { cpuPercent } = await read()
  expect(cpuPercent).toBeGreaterThan((100 / os.cpus().length) * 0.5)
  expect(cpuPercent).toBeLessThanOrEqual(100)
})

test('reading the metrics takes less than 50 ms', async () => {
  const read = startMetrics()
  await read()
  const started = performance.now()
  for (let n = 0; n < 20; n += 1) await read()
  expect((performance.now() - started) / 20).toBeLessThan(50)
})
