import { cp, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { examineRestored } from '../../../daemon/backup/drill-checks.ts'
import { environmentOn, readConfig } from '../../../daemon/config.ts'
import { verifyStoredChain } from '../../../src/audit/checkpoints/chain-verification.ts'
import { openCheckpoint, signCheckpoint } from '../../../src/audit/checkpoints/checkpoint.ts'
import { signedChainEnd, takeCheckpoint } from '../../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../../src/audit/checkpoints/local-copies.ts'
import { createSigner, recordKeys } from '../../../src/audit/checkpoints/signer.ts'
import { VerificationState } from '../../../src/audit/checkpoints/verification.ts'
import { chainFile } from '../../../src/audit/handlers.ts'
import { type Pin, toPin } from '../../../src/audit/verifier/pins.ts'
import { ChainVerifier } from '../../../src/audit/verifier/verifier.ts'
import { findPin, readPins, savePins } from '../../../src/cli/audit-pins.ts'
import { systemScope } from '../../../src/core/scope.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { happen, unguarded } from '../../audit/chains.ts'
import { openMigrated } from '../../databases.ts'
import { testSecrets } from '../../harness.ts'
import { backupOf, emptyPlace, inEnvironmentOf, kinds, type Place, restored, withStorage } from './filled.ts'

const x = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a11'
const y = '0197c1c4-7a55-7c3e-9d2f-0c7d5c1b2a22'

const signingOf = ({ dataDir }: Place) => readConfig({ ...testSecrets, SVC_DATA_DIR: dataDir }).signing

function depsOn(storage: Storage, place: Place) {
  return {
    storage,
    signer: createSigner(storage, signingOf(place)),
    localCopies: localCopiesIn(join(place.dataDir, 'checkpoints')),
    clock: systemClock,
    memory: new VerificationState(),
    onRefusal() {},
    onVerdict() {},
  }
}

/** A database with keys and nothing else. */
async function placeOf(kind: (typeof kinds)[number]): Promise<Place> {
  const database = await openMigrated(kind)
  const place = { dataDir: database.dataDir, databaseUrl: database.databaseUrl }
  await withStorage(place, ({ write }) => write((tx) => recordKeys(tx, signingOf(place), systemClock())))
  return place
}

const grown = (place: Place, chain: string | null, count: number) =>
  withStorage(place, async (storage) => {
    await happen(storage, chain, count)
    await takeCheckpoint(depsOn(storage, place), chain ?? 'system')
  })

/** What an auditor with the key of the service finds in the system chain. */
const audited = (place: Place, pin?: Pin) =>
  withStorage(place, async (storage) => {
    const deps = depsOn(storage, place)
    const end = await signedChainEnd(deps, 'system')
    const verifier = new ChainVerifier({ keys: [deps.signer.publicKeys[0]!], pinOf: () => pin })
    for await (const piece of chainFile({ storage, clock: systemClock }, systemScope, 'system', end))
      verifier.push(Buffer.from(piece))
    const verdict = verifier.end()
    if (verdict.verdict !== 'sound') throw new Error(`${verdict.fault.kind}: ${verdict.fault.message}`)
    return { verdict, pin: toPin(verdict, systemClock(), pin) }
  })

const found = (place: Place, chain: string) =>
  withStorage(place, (storage) => verifyStoredChain(depsOn(storage, place), chain))

/** A machine that has what another one signed last. */
async function machineAfter({ dataDir }: Place, kind: (typeof kinds)[number]): Promise<Place> {
  const place = await emptyPlace(kind)
  await cp(join(dataDir, 'checkpoints'), join(place.dataDir, 'checkpoints'), { recursive: true })
  // Times are compared in milliseconds.
  await sleep(5)
  return place
}

describe.each(kinds)('restores of audit chains on %s', (kind) => {
  it('are not told by the statement about another chain', async () => {
    const first = await placeOf(kind)
    await grown(first, y, 3)
    const { file } = await backupOf(first)
    await grown(first, x, 40)
    await grown(first, y, 20)
    const place = await machineAfter(first, kind)
    await restored(place, file)
    // Whoever writes the database takes the statement about Y for X, whose entries are gone.
    await writeFile(join(place.dataDir, 'checkpoints', x), await noteOf(first, x))
    await withStorage(place, (storage) =>
      unguarded(storage, async (tx) => {
        const notes = await tx.selectFrom('audit_restores').selectAll().where('chain', '=', y).execute()
        await tx.deleteFrom('audit_restores').where('chain', '=', x).execute()
        await tx
          .insertInto('audit_restores')
          .values(notes.map((row) => ({ ...row, chain: x })))
          .execute()
      }),
    )
    expect(await found(place, x)).toMatchObject({ verdict: 'tampered', fault: { kind: 'truncated' } })

    // Nor does its own statement explain a chain that no longer has what the backup had of it.
    await writeFile(join(place.dataDir, 'checkpoints', y), await noteOf(first, y))
    expect(await found(place, y)).toMatchObject({ verdict: 'sound' })
    await writeFile(join(place.dataDir, 'checkpoints', y), await noteOf(first, y))
    await withStorage(place, (storage) =>
      unguarded(storage, async (tx) => {
        for (const table of ['audit_logs', 'audit_heads', 'audit_checkpoints', 'audit_tiles'] as const) {
          await tx.deleteFrom(table).where('chain', '=', y).execute()
        }
      }),
    )
    expect(await found(place, y)).toMatchObject({ verdict: 'tampered', fault: { kind: 'truncated' } })
  })

  it('explain what came before them, also on a branch that an earlier one began', async () => {
    const first = await placeOf(kind)
    await grown(first, null, 10)
    const older = await backupOf(first)
    await grown(first, null, 50)
    const newer = await backupOf(first)
    const second = await machineAfter(first, kind)
    await restored(second, older.file)
    await grown(second, null, 5)
    const { pin } = await audited(second)
    expect(pin.seq).toBeLessThan(60)
    const third = await machineAfter(second, kind)
    await restored(third, newer.file)
    expect(await found(third, 'system')).toMatchObject({ verdict: 'sound' })
    const after = await audited(third, pin)
    expect(after.verdict).toMatchObject({ pin: 'restored', restores: [{ lost: { to: null } }] })

    // The pin moves to what is there now, and holds it.
    const pins = join(await emptyPlace('sqlite').then(({ dataDir }) => dataDir), 'pins.json')
    const ahead = { ...pin, seq: 500 }
    await savePins(pins, [{ orgId: null, pin: ahead }])
    await savePins(pins, [{ orgId: null, pin: after.pin }])
    expect(findPin(readPins(pins), null)).toEqual(ahead)
    await savePins(pins, [{ orgId: null, pin: after.pin, lost: pin }])
    expect(findPin(readPins(pins), null)).toEqual(ahead)
    await savePins(pins, [{ orgId: null, pin: after.pin, lost: ahead }])
    expect(findPin(readPins(pins), null)).toEqual(after.pin)
    expect((await audited(third, after.pin)).verdict.pin).toBe('kept')
  })

  it('sign nothing when they are rehearsed', async () => {
    const first = await placeOf(kind)
    await grown(first, null, 10)
    await grown(first, x, 3)
    const before = [await noteOf(first, 'system'), await noteOf(first, x)]
    const { file } = await backupOf(first)
    const scratch = await emptyPlace(kind)
    expect((await restored(scratch, file, { isRehearsal: true })).isStated).toBe(false)
    const findings = await inEnvironmentOf(scratch, () =>
      examineRestored(scratch, environmentOn(scratch.databaseUrl)),
    )
    expect(findings.find(({ check }) => check === 'audit log')).toMatchObject({ state: 'ok' })
    await withStorage(scratch, async (storage) => {
      expect(await storage.read.selectFrom('audit_restores').selectAll().execute()).toEqual([])
      const signed = await storage.read
        .selectFrom('audit_checkpoints')
        .select(['chain', 'seq', 'note'])
        .execute()
      const keys = [createSigner(storage, signingOf(scratch)).publicKeys[0]!]
      const own = signed.filter(({ note }) => openCheckpoint(note, keys).state === 'signed')
      expect(own.length).toBeGreaterThan(0)
      for (const { note } of own) expect(before).toContain(note)
      expect(signed.length).toBeGreaterThan(own.length)
    })
    expect(await readdir(join(scratch.dataDir, 'checkpoints'))).toContain('system')
  })

  it('wait until the clock is past what was signed', async () => {
    const first = await placeOf(kind)
    await grown(first, null, 10)
    const { file } = await backupOf(first)
    await grown(first, null, 3)
    const place = await machineAfter(first, kind)
    const opened = openCheckpoint(await noteOf(first, 'system'), [])
    if (opened.state === 'unreadable') throw new Error(opened.state)
    const time = addSeconds(systemClock(), 3600)
    const late = signCheckpoint({ ...opened.checkpoint, time }, signingOf(first).current)
    await writeFile(join(place.dataDir, 'checkpoints', 'system'), late)
    await expect(restored(place, file)).rejects.toThrow(`is dated ${time}, and here it is`)
  })
})

const noteOf = async ({ dataDir }: Place, chain: string): Promise<string> =>
  (await localCopiesIn(join(dataDir, 'checkpoints')).read(chain))!
