import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { leaseSeconds } from '../../src/storage/leases.ts'
import { openEmpty, type TestDatabase, temporaryFolder } from '../databases.ts'
import { testSecrets } from '../harness.ts'
import { metricsToken } from '../metric-values.ts'
import { ServeProcess, until } from './process.ts'

describe('three processes on one Postgres', () => {
  let database: TestDatabase
  let processes: { process: ServeProcess; url: string }[]

  beforeAll(async () => {
    database = await openEmpty('postgres')
    const { databaseUrl } = database
    const env = { ...testSecrets, METRICS_TOKEN: metricsToken }
    processes = []
    // One after the other: a busy machine starts three at once too slowly.
    for (let n = 0; n < 3; n += 1) {
      const process = new ServeProcess({ dataDir: await temporaryFolder(), databaseUrl }, { env })
      processes.push({ process, url: await process.listening() })
    }
  })

  afterAll(async () => {
    for (const { process } of processes) if (process.running) process.kill('SIGKILL')
    await Promise.all(processes.map(({ process }) => process.ended))
    await database.close()
  })

  /** The leases that each process says it has; none of one that does not answer. */
  const heldBy = async (at: number): Promise<string[]> => {
    const signal = AbortSignal.timeout(2000)
    const headers = { authorization: `Bearer ${metricsToken}` }
    const text = await fetch(`${processes[at]!.url}/metrics`, { headers, signal })
      .then((reply) => reply.text())
      .catch(() => '')
    return [...text.matchAll(/^svc_lease_held\{name="([^"]+)"\} 1$/gm)].map(([, name]) => name!).sort()
  }
  const everybody = async (among = [0, 1, 2]) => (await Promise.all(among.map(heldBy))).flat().sort()
  const rows = () =>
    database.storage.read.selectFrom('leases').select(['name', 'holder', 'epoch']).orderBy('name').execute()
  const holderOf = async (name: string, among = [0, 1, 2]) => {
    for (const at of among) if ((await heldBy(at)).includes(name)) return at
    return -1
  }
  const takeover = (leaseSeconds + 60) * 1000

  it('share the leases: each is held by one of them', async () => {
    await until(async () => (await everybody()).length > 0, takeover)
    const names = (await rows()).map(({ name }) => name)
    expect(names).toContain('device watch')
    await until(async () => (await everybody()).length === names.length, takeover)
    expect(await everybody()).toEqual(names)
  })

  it('take over from one that is frozen; when it comes back it gives way, and from one that is killed', {
    timeout: 400_000,
  }, async () => {
    const frozen = await holderOf('device watch')
    const before = (await rows()).find(({ name }) => name === 'device watch')!
    processes[frozen]!.process.kill('SIGSTOP')
    const rest = [0, 1, 2].filter((at) => at !== frozen)
    await until(async () => (await holderOf('device watch', rest)) !== -1, takeover)
    const after = (await rows()).find(({ name }) => name === 'device watch')!
    expect(after).toMatchObject({ epoch: before.epoch + 1 })
    expect(after.holder).not.toBe(before.holder)
    processes[frozen]!.process.kill('SIGCONT')
    // It takes none back, and each has one holder again.
    await until(async () => (await everybody()).length === (await rows()).length, takeover)
    expect((await rows()).find(({ name }) => name === 'device watch')).toEqual(after)

    const killed = await holderOf('device watch')
    expect(killed).not.toBe(frozen)
    processes[killed]!.process.kill('SIGKILL')
    await processes[killed]!.process.ended
    const left = [0, 1, 2].filter((at) => at !== killed)
    await until(async () => (await everybody(left)).length === (await rows()).length, takeover)
    expect((await rows()).every(({ holder }) => holder !== after.holder)).toBe(true)
  })

  it('release them when they stop', async () => {
    const [first, second] = [0, 1, 2].filter((at) => processes[at]!.process.running)
    await processes[first!]!.process.stop()
    await processes[second!]!.process.stop()
    expect(new Set((await rows()).map(({ holder }) => holder))).toEqual(new Set([null]))
  })
})
