import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { Home, noTerminal } from '../../cli/run.ts'
import { temporaryFolder } from '../../databases.ts'
import { testSecrets } from '../../harness.ts'
import { filledPlace, withStorage } from './filled.ts'

it.skipIf(noTerminal)('svc db backup shows its rate and the time left at a terminal', async () => {
  const place = await filledPlace('sqlite')
  const { id: org_id, deviceId: device_id } = place.world.orgs.bakery
  const at = '2026-03-01T12:00:00.000Z'
  const of = { device_id, org_id, timestamp: at, created_at: at, level: 'info', component: 'agent' }
  // What does not become smaller, so that the limited rate takes longer than the three seconds after which a bar is shown.
  await withStorage(place, ({ write }) =>
    write(async (tx) => {
      for (let seq = 0; seq < 300; seq++) {
        const row = { ...of, id: `log-${seq}`, seq, message: randomBytes(3000).toString('base64') }
        await tx.insertInto('agent_logs').values(row).execute()
      }
    }),
  )
  const out = join(await temporaryFolder(), 'a.backup')
  const args = ['db', 'backup', '--out', out, '--limit-rate', '150K']
  const home = new Home({ ...testSecrets, SVC_DATA_DIR: place.dataDir })
  onTestFinished(() => home.remove())
  const { code, stdout } = await home.terminal(args, { columns: 120 })
  expect(stdout).toMatch(/Backing up \[#*-*\] [\d ]+ of [\d ]+ rows, [\d ]+ rows\/s, \d+ s left/)
  expect(stdout).toContain(`Wrote ${out}`)
  expect(code).toBe(0)
})
