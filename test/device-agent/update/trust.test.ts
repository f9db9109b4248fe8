import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { settingsStore } from '../../../src/device-agent/settings.ts'
import { openUpdateJournal } from '../../../src/device-agent/update/journal.ts'
import { verifyCandidate } from '../../../src/device-agent/update/offer.ts'
import { trustStore } from '../../../src/device-agent/update/trust-store.ts'
import { infoOf, type Publisher, publisher } from './releases.ts'

let stateDir: string
beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'svc-trust-'))
})
afterEach(() => rmSync(stateDir, { recursive: true, force: true }))

const trust = (operators?: string[]) => trustStore(stateDir, () => operators)
const ids = (operators?: string[]) =>
  trust(operators)
    .keys()
    .map(({ keyId }) => keyId)
const wanted = (operators?: string[]) => ({
  version: '2.0.0',
  present: '1.0.0',
  machine: { platform: process.platform, architecture: process.arch },
  trust: trust(operators),
})
const content = Buffer.from('#!/bin/sh\n')
const announcing = (by: Publisher, next: Publisher) =>
  infoOf(by, '2.0.0', content, { manifest: { nextKeys: [{ publicKeyB64: next.trustKey.publicKeyB64 }] } })

describe('the keys that the service names', () => {
  test('are pinned the first time that there are any, and never exchanged by it', () => {
    const [first, second] = [publisher(), publisher()]
    expect(ids()).toEqual([])
    trust().pin([])
    trust().pin([{ publicKeyB64: 'nonsense' }])
    expect(ids()).toEqual([])
    trust().pin([first.trustKey])
    trust().pin([second.trustKey])
    trust().pin([first.trustKey, second.trustKey])
    expect(ids()).toEqual([first.trustKey.keyId])
  })

  test('count for nothing where an operator named others', () => {
    const [named, own] = [publisher(), publisher()]
    trust().pin([named.trustKey])
    expect(ids([own.trustKey.publicKeyB64])).toEqual([own.trustKey.keyId])
    expect(ids([])).toEqual([])
  })
})

describe('a manifest', () => {
  test('announces keys that sign later ones, and these others', () => {
    const [first, second, third] = [publisher(), publisher(), publisher()]
    trust().pin([first.trustKey])
    expect(() => verifyCandidate(announcing(second, third), wanted())).toThrow('not by a trusted key')
    verifyCandidate(announcing(first, second), wanted())
    verifyCandidate(announcing(second, third), wanted())
    expect(ids()).toEqual([first, second, third].map(({ trustKey }) => trustKey.keyId))
  })

  test('that a key had signed which does not count any more vouches for nobody', () => {
    const [named, next, own] = [publisher(), publisher(), publisher()]
    trust().pin([named.trustKey])
    verifyCandidate(announcing(named, next), wanted())
    expect(ids([own.trustKey.publicKeyB64])).toEqual([own.trustKey.keyId])
  })

  test('that is refused for what it is about announces nothing', () => {
    const [by, next] = [publisher(), publisher()]
    trust().pin([by.trustKey])
    const info = { ...announcing(by, next), size: 1 }
    expect(() => verifyCandidate(info, wanted())).toThrow('the file differs from the manifest')
    expect(ids()).toEqual([by.trustKey.keyId])
  })

  test('is not believed as long as no key is known', () => {
    expect(() => verifyCandidate(infoOf(publisher(), '2.0.0', content), wanted())).toThrow('no_trusted_keys')
  })

  test('may go back, and not over a version that is needed between', () => {
    const by = publisher()
    trust().pin([by.trustKey])
    const info = (minFrom: string) => infoOf(by, '2.0.0', content, { manifest: { minFrom } })
    expect(verifyCandidate(infoOf(by, '2.0.0', content), { ...wanted(), present: '3.0.0' }).version).toBe(
      '2.0.0',
    )
    expect(() => verifyCandidate(info('1.0.1'), wanted())).toThrow('it needs 1.0.1 first')
    expect(verifyCandidate(info('1.0.0'), wanted()).sha256).toHaveLength(64)
    expect(verifyCandidate(info('1.0.1'), { ...wanted(), present: 'dev-1' }).size).toBe(content.length)
  })
})

describe('the lowest version that a signed release allows', () => {
  const offered = (by: Publisher, version: string, manifest: object = {}, present = '1.5.0') =>
    verifyCandidate(infoOf(by, version, content, { manifest }), { ...wanted(), version, present })

  test('is kept over restarts, and holds against whatever is offered after it', () => {
    const by = publisher()
    trust().pin([by.trustKey])
    offered(by, '1.9.0', {}, '2.0.0')
    offered(by, '2.0.0', { minimumVersion: '2.0.0-rc.2' })
    const refusal = 'it is below 2.0.0-rc.2, the lowest version that a signed release allows'
    // Also as what comes after the version that is there: a trial that failed has left the floor.
    for (const version of ['1.9.0', '2.0.0-rc.1']) {
      expect(() => offered(by, version)).toThrow(
        expect.objectContaining({ kind: 'refused', message: refusal }),
      )
      expect(() => offered(by, version, {}, '3.0.0')).toThrow(refusal)
      expect(() => offered(by, version, {}, 'dev-1')).toThrow(refusal)
    }
    for (const version of ['2.0.0-rc.2', '2.0.0-rc.10', '2.0.0', '2.1.0']) {
      expect(offered(by, version, {}, '3.0.0').version).toBe(version)
    }
  })

  test('rises with releases that say more, and never sinks', () => {
    const by = publisher()
    trust().pin([by.trustKey])
    offered(by, '2.0.0', { minimumVersion: '1.8.0' })
    offered(by, '2.1.0', { minimumVersion: '1.2.0' })
    offered(by, '2.2.0')
    expect(trust().floor()).toBe('1.8.0')
    offered(by, '2.3.0', { minimumVersion: '2.3.0' })
    expect(trust().floor()).toBe('2.3.0')
    expect(() => offered(by, '2.2.0')).toThrow('it is below 2.3.0')
  })

  test('is nothing that a key says which is not trusted, or a release that is refused', () => {
    const [by, other] = [publisher(), publisher()]
    trust().pin([by.trustKey])
    expect(() => offered(other, '9.0.0', { minimumVersion: '9.0.0' })).toThrow('not by a trusted key')
    expect(() => offered(by, '2.0.0', { minimumVersion: '2.0.0', minFrom: '1.6.0' })).toThrow('needs 1.6.0')
    expect(trust().floor()).toBeUndefined()
    expect(offered(by, '1.4.0').version).toBe('1.4.0')
  })
})

describe('what people decided', () => {
  test('is to update unless they said otherwise, and outlives a restart', () => {
    expect(settingsStore(stateDir).load()).toMatchObject({
      autoUpdate: true,
      trialSeconds: 180,
      silenceSeconds: 300,
    })
    writeFileSync(join(stateDir, 'config.json'), '{"trialSeconds":30,"site":"north"}')
    settingsStore(stateDir).setAutoUpdate(false)
    expect(settingsStore(stateDir).load()).toMatchObject({
      autoUpdate: false,
      trialSeconds: 30,
      site: 'north',
    })
  })

  test('that cannot be read is to change nothing and to trust nobody', () => {
    writeFileSync(join(stateDir, 'config.json'), '{"autoUpdate":tru')
    const settings = settingsStore(stateDir)
    expect(settings.load()).toMatchObject({ autoUpdate: false, trustKeys: [] })
    expect(() => settings.setAutoUpdate(true)).toThrow('config.json is not readable')
  })

  test('counts until the agent ends where it cannot be written', () => {
    const settings = settingsStore('/proc/nowhere')
    expect(() => settings.setAutoUpdate(false)).toThrow()
    expect(settings.load().autoUpdate).toBe(false)
  })
})

test('a version that failed is left alone for an hour, whatever the clock says meanwhile', () => {
  const journal = openUpdateJournal(stateDir)
  const at = (minutes: number): Date => new Date(Date.UTC(2026, 0, 31, 12) + minutes * 60_000)
  journal.fail('2.0.0', 'no', at(0))
  expect([0, 59, 60, -1, -1e6].map((minutes) => journal.failedRecently('2.0.0', at(minutes)))).toEqual([
    true,
    true,
    false,
    false,
    false,
  ])
  expect(journal.failedRecently('2.0.1', at(1))).toBe(false)
})
