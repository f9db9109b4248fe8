import fc from 'fast-check'
import { expect } from 'vitest'
import { seed } from '../../depth.ts'
import { testSecrets } from '../../harness.ts'
import { type Ended, SvcProcess, svc } from '../backup/binary.ts'
import { type Place, withStorage } from '../backup/filled.ts'
import { placeOf } from './copies.ts'

/** How `svc db copy` is told where to. */
const told = (to: Place): { args: string[]; env: Record<string, string> } =>
  to.databaseUrl === undefined
    ? { args: ['db', 'copy', '--to', to.dataDir, '--json'], env: testSecrets }
    : { args: ['db', 'copy', '--json'], env: { ...testSecrets, TARGET_DATABASE_URL: to.databaseUrl } }

export const copyTo = (from: Place, to: Place): SvcProcess => {
  const { args, env } = told(to)
  return new SvcProcess(args, from, env)
}

export const isWritable = (place: Place): Promise<boolean> =>
  withStorage(place, (storage) =>
    storage
      .write((tx) => tx.updateTable('probes').set({ at: '' }).execute())
      .then(
        () => true,
        () => false,
      ),
  )

export const reopened = async (from: Place): Promise<void> =>
  expect((await svc(['db', 'copy', '--reopen', '--yes', '--json'], from)).code).toBe(0)

type Killing = {
  from: Place
  /** Another target, once a copy was faster than its kill. */
  empty(): Promise<Place>
  kills: number
  /** Milliseconds after which the last of them comes. */
  longest: number
  /** What has to be the same at both places. */
  contentOf(place: Place): Promise<unknown>
}

/** Kills copies at random moments, and ends with one that is not killed, whose target it returns. */
export async function copiedDespite({
  from,
  empty,
  kills,
  longest,
  contentOf,
}: Killing): Promise<{ to: Place; ended: Ended }> {
  let to = await empty()
  let [killed, finished] = [0, 0]
  const assertSame = async () => expect(await contentOf(placeOf(from, to))).toEqual(await contentOf(from))
  for (const moment of fc.sample(fc.integer({ min: 200, max: longest }), { numRuns: 4 * kills, seed })) {
    if (killed === kills) break
    const copy = copyTo(from, to)
    const timer = setTimeout(() => copy.kill(), moment)
    const { code, signal, stderr } = await copy.ended
    clearTimeout(timer)
    if (signal === 'SIGKILL') {
      killed += 1
      if (await isWritable(from)) continue
      // Between its last two steps, or after them: the copy is what counts, and the next one finishes it.
      const again = await copyTo(from, to).ended
      if (again.code !== 0) expect(again.stderr).toMatch(/This database was moved to/)
    } else expect([code, stderr]).toEqual([0, ''])
    finished += 1
    expect(await isWritable(from)).toBe(false)
    await assertSame()
    await reopened(from)
    to = await empty()
  }
  expect(killed).toBe(kills)
  expect(finished).toBeLessThan(3 * kills)
  const ended = await copyTo(from, to).ended
  expect([ended.code, ended.stderr]).toEqual([0, ''])
  await assertSame()
  return { to, ended }
}
