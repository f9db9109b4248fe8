import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { verifyStoredChain } from '../../src/audit/checkpoints/chain-verification.ts'
import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { findLastCheckpoint } from '../../src/audit/checkpoints/store.ts'
import { newId } from '../../src/core/new-id.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase, type TestDatabase } from '../databases.ts'
import { depth, seed } from '../depth.ts'
import { partsOn } from './chains.ts'
import type { Life } from './signing-child.ts'

const child = fileURLToPath(new URL('./signing-child.ts', import.meta.url))

/** Runs the child until it is killed, and returns the number of entries it reported as signed. */
async function runUntilKilled(
  { dataDir, databaseUrl }: TestDatabase,
  orgId: string,
  after: number,
  ends?: Life['ends'],
) {
  const life: Life = { dataDir, databaseUrl, orgId, ...(ends && { ends }) }
  const signing = spawn(process.execPath, [child, JSON.stringify(life)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  signing.stdout.on('data', (chunk) => {
    output += chunk
  })
  const ended = once(signing, 'close')
  if (ends === undefined) {
    await Promise.race([once(signing.stdout, 'data'), ended])
    await sleep(after)
    signing.kill('SIGKILL')
  }
  const [, signal] = await ended
  expect(signal).toBe('SIGKILL')
  return Number(output.trim().split('\n').at(-1))
}

onEveryDatabase((_, open) => {
  it('a kill -9 between a checkpoint in the database and its file does not stop signing', async () => {
    const database = await open()
    // What signs beside it has the clock of the machine.
    const parts = { ...partsOn(database), clock: systemClock }
    const org = newId()
    const stored = async () => (await findLastCheckpoint(database.storage.read, org))?.note
    await runUntilKilled(database, org, 0, 'after the file')
    const first = await parts.localCopies.read(org)
    expect(first).toBe(await stored())

    await runUntilKilled(database, org, 0, 'before the file')
    expect(await parts.localCopies.read(org), 'the one before it').toBe(first)
    expect(await stored()).not.toBe(first)

    const { checkpoint } = await takeCheckpoint(parts, org)
    expect(checkpoint.head.seq).toBe(6)
    expect(await parts.localCopies.read(org), 'brought up to date').toBe(await stored())
    expect(await verifyStoredChain(parts, org)).toMatchObject({ verdict: 'sound', entries: 6 })
    expect(parts.refused).toEqual([])
  })

  it(`a kill -9 at any moment of signing loses and contradicts no checkpoint (SEED=${seed})`, async () => {
    const database = await open()
    // What signs beside it has the clock of the machine.
    const parts = { ...partsOn(database), clock: systemClock }
    const org = newId()
    let state = seed
    for (let round = 0; round < depth(2, 4); round += 1) {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0
      const output = await runUntilKilled(database, org, state % 120)
      const { checkpoint } = await takeCheckpoint(parts, org)
      expect(checkpoint.head.seq).toBeGreaterThanOrEqual(output)
      const note = (await findLastCheckpoint(database.storage.read, org))!.note
      expect(await parts.localCopies.read(org)).toBe(note)
      expect((await verifyStoredChain(parts, org)).verdict).toBe('sound')
    }
    expect(parts.refused).toEqual([])
  })
})
