import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import type { AgentEvent } from '../../../src/device-agent/events.ts'
import type { SpoolRecord } from '../../../src/device-agent/spool/records.ts'
import { updaterOf } from '../../../src/device-agent/update/updater.ts'

test('a failed update that cannot be put on record is reported with both reasons', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'svc-updater-'))
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }))
  const events: AgentEvent[] = []
  const spooled: SpoolRecord[] = []
  const updater = updaterOf({
    self: { version: '2.0.0', file: join(stateDir, 'svc-agent') },
    stateDir,
    settings: { load: () => ({ autoUpdate: true }) },
    journal: {
      failedRecently: () => false,
      fail() {
        throw new Error('no room')
      },
    },
    spool: { append: (record: SpoolRecord) => void spooled.push(record) },
    source: { signal: new AbortController().signal },
    report: (event: AgentEvent) => void events.push(event),
    now: () => new Date(),
  } as never)
  updater.consider({ version: '1.0.0', isRollback: false })
  await updater.settled()
  expect(events).toEqual([
    {
      event: 'update',
      state: 'refused',
      version: '1.0.0',
      reason: expect.stringContaining('older than 2.0.0'),
    },
    {
      event: 'update',
      state: 'failed',
      version: '1.0.0',
      reason: 'update.json could not be written: no room',
    },
  ])
  expect(spooled).toMatchObject([{ kind: 'update', outcome: { state: 'refused' } }])
})
