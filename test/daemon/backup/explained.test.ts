import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../../../daemon/config.ts'
import { api } from '../../../src/api.ts'
import { verifyStoredChain } from '../../../src/audit/checkpoints/chain-verification.ts'
import { openCheckpoint, signCheckpoint } from '../../../src/audit/checkpoints/checkpoint.ts'
import { takeCheckpoint } from '../../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../../src/audit/checkpoints/local-copies.ts'
import { openRestored, signRestored } from '../../../src/audit/checkpoints/restored.ts'
import { createSigner } from '../../../src/audit/checkpoints/signer.ts'
import { VerificationState } from '../../../src/audit/checkpoints/verification.ts'
import { type Pin, toPin } from '../../../src/audit/verifier/pins.ts'
import { ChainVerifier } from '../../../src/audit/verifier/verifier.ts'
import { addSeconds, systemClock } from '../../../src/core/time.ts'
import { serviceOn, type TestService, testSecrets } from '../../harness.ts'
import { buildWorld, systemToken } from '../../world.ts'
import { backupOf, emptyPlace, kinds, type Place, restored, withStorage } from './filled.ts'

const seedOf = (place: Place) => readConfig({ ...testSecrets, SVC_DATA_DIR: place.dataDir }).signing.current

async function fileOf(service: TestService, orgId: string): Promise<Buffer> {
  const client = service.client(await systemToken(service))
  const pieces: Buffer[] = []
  for await (const piece of client.stream(api.auditLogs.chain, { query: { orgId } })) pieces.push(piece)
  return Buffer.concat(pieces)
}

function verdictOf(file: Buffer, { pin, keys }: { pin?: Pin; keys?: Buffer[] } = {}) {
  const verifier = new ChainVerifier({ keys, pinOf: () => pin })
  verifier.push(file)
  return verifier.end()
}

function sound(file: Buffer, trust?: Parameters<typeof verdictOf>[1]) {
  const verdict = verdictOf(file, trust)
  if (verdict.verdict !== 'sound') throw new Error(verdict.fault.message)
  return verdict
}

const depsOn = (storage: Parameters<typeof createSigner>[0], place: Place) => ({
  storage: storage as never,
  signer: createSigner(storage, readConfig({ ...testSecrets, SVC_DATA_DIR: place.dataDir }).signing),
  localCopies: localCopiesIn(join(place.dataDir, 'checkpoints')),
  clock: systemClock,
  memory: new VerificationState(),
  onRefusal() {},
  onVerdict() {},
})

describe.each(kinds)('audit chains on %s that were longer than in a restored backup', (kind) => {
  it('are explained by a signed statement, and by nothing else', { timeout: 180_000 }, async () => {
    const place = await emptyPlace(kind)
    const service = await serviceOn(place)
    const { tokens, orgs } = await buildWorld(service)
    const orgId = orgs.bakery.id
    const addSites = async (on: TestService, token: string, count: number, from: string) => {
      for (let n = 0; n < count; n++) {
        await on.client(token).call(api.sites.create, { body: { orgId, name: `${from} ${n}` } })
      }
    }
    await addSites(service, tokens.bakery, 3, 'before')
    const first = sound(await fileOf(service, orgId))
    const backup = await backupOf(place)
    await addSites(service, tokens.bakery, 5, 'lost')
    const keys = [depsOn(service.storage, place).signer.publicKeys[0]!]
    const last = sound(await fileOf(service, orgId), { keys })
    const pin = toPin(last, systemClock())
    await service.close()

    // The machine is new, and has what it signed last.
    const again = await emptyPlace(kind)
    await cp(join(place.dataDir, 'checkpoints'), join(again.dataDir, 'checkpoints'), { recursive: true })
    const copy = join(again.dataDir, 'checkpoints', orgId)
    const signedLast = await readFile(copy, 'utf8')
    const summary = await restored(again, backup.file)
    const [from, to] = [first.head.seq, last.head.seq]
    expect(summary.isStated).toBe(true)
    const lost = summary.entriesLost.find(({ chain }) => chain === orgId)!
    expect(lost.to).toBe(to)
    expect(lost.from).toBeLessThanOrEqual(to - 4)
    expect(lost.from).toBeGreaterThan(from)

    await withStorage(again, async (storage) => {
      // The copy was given up at once, and one that comes back is explained again.
      expect(await readFile(copy, 'utf8')).not.toBe(signedLast)
      await writeFile(copy, signedLast)
      const deps = depsOn(storage, again)
      const told: unknown[] = []
      const verdict = await verifyStoredChain({ ...deps, onRestored: (it) => void told.push(it) }, orgId)
      expect(verdict).toMatchObject({ verdict: 'sound' })
      expect(told).toMatchObject([{ chain: orgId, signed: to, head: { seq: lost.from - 1 } }])
      expect(await verifyStoredChain(deps, 'system')).toMatchObject({ verdict: 'sound' })
    })

    const revived = await serviceOn(again)
    const admin = revived.client(await systemToken(revived))
    const { data } = await admin.call(api.auditLogs.list, { query: { action: 'database.restore' } })
    expect(data[0]!.details).toMatchObject({
      backup: { sha256: backup.sha256, madeAt: backup.madeAt },
      chains: { sha256: expect.stringMatching(/^[0-9a-f]{64}$/), heads: expect.any(Array) },
    })
    const report = { time: expect.any(String), backup: { madeAt: backup.madeAt, sha256: backup.sha256 } }
    const isExplained = {
      pin: 'restored',
      restores: [{ ...report, lost: { from: lost.from, to }, state: 'signed' }],
    }
    const short = await fileOf(revived, orgId)
    expect(sound(short, { keys, pin })).toMatchObject(isExplained)
    expect(sound(short)).toMatchObject({ restores: [{ state: 'unchecked' }] })
    expect(verdictOf(short, { pin: { ...pin, key: null } })).toMatchObject({
      verdict: 'tampered',
      fault: { kind: 'truncated', message: expect.stringContaining('--key') },
    })
    // Other entries take the numbers of the lost ones.
    await addSites(revived, await systemToken(revived), 9, 'after')
    const long = await fileOf(revived, orgId)
    expect(sound(long, { keys, pin })).toMatchObject(isExplained)

    // What was seen since the restore is not explained by it: the same database once more, without a restore.
    const seen = toPin(sound(long, { keys, pin }), systemClock())
    expect(verdictOf(short, { keys, pin: seen })).toMatchObject({
      verdict: 'tampered',
      fault: { kind: 'truncated' },
    })

    const notes = () =>
      revived.storage.read.selectFrom('audit_restores').select('note').where('chain', '=', orgId)
    const [{ note }] = (await notes().execute()) as [{ note: string }]
    const saying = (text: string) =>
      revived.storage.write((tx) =>
        tx.updateTable('audit_restores').set({ note: text }).where('chain', '=', orgId).execute(),
      )
    const opened = openRestored(note, keys)
    if (opened.state !== 'signed') throw new Error(opened.state)
    const later = { ...opened.restored, time: addSeconds(systemClock(), 60) }
    // By a former key: it explains nothing, and is no fault of the rest.
    const former = signRestored(later, Buffer.alloc(32, 7))
    await saying(former)
    const unexplained = await fileOf(revived, orgId)
    const kept = { pin: 'kept', restores: [{ state: 'untrusted' }] }
    expect(sound(unexplained, { keys, pin: seen })).toMatchObject(kept)
    expect(verdictOf(unexplained, { keys, pin })).toMatchObject({ fault: { kind: 'rewritten' } })
    const forgeries: [text: string, kind: string][] = [
      [note.replace(opened.restored.time, later.time), 'altered'],
      [signRestored({ ...later, orgId: null }, seedOf(again)!), 'foreign'],
    ]
    for (const [text, kind] of forgeries) {
      await saying(text)
      expect(verdictOf(await fileOf(revived, orgId), { keys, pin })).toMatchObject({
        verdict: 'tampered',
        fault: { kind },
      })
      await writeFile(copy, signedLast)
      await expect(takeCheckpoint(depsOn(revived.storage, again), orgId)).rejects.toMatchObject({
        code: 'audit_history_changed',
      })
    }
    await saying(former)
    await expect(takeCheckpoint(depsOn(revived.storage, again), orgId)).rejects.toMatchObject({
      code: 'audit_history_changed',
    })
    await saying(note)
    // Signed after the restore, beyond what the chain has now: nothing explains that.
    const checkpoint = openCheckpoint(signedLast, keys)
    if (checkpoint.state !== 'signed') throw new Error(checkpoint.state)
    const head = { ...checkpoint.checkpoint.head, seq: 999 }
    const ahead = { ...checkpoint.checkpoint, head, time: systemClock() }
    await writeFile(copy, signCheckpoint(ahead, seedOf(again)))
    expect(await verifyStoredChain(depsOn(revived.storage, again), orgId)).toMatchObject({
      verdict: 'tampered',
      fault: { kind: 'truncated' },
    })
    await writeFile(copy, signedLast)
    expect(await verifyStoredChain(depsOn(revived.storage, again), orgId)).toMatchObject({ verdict: 'sound' })
  })
})
