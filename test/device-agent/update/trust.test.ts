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

describe('the trusted keys of the service', () => {
  test('are pinned when there are any for the first time, and never replaced by the service', () => {
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

  test('are ignored where an operator configured others', () => {
    const [named, own] = [publisher(), publisher()]
    trust().pin([named.trustKey])
    expect(ids([own.trustKey.publicKeyB64])).toEqual([own.trustKey.keyId])
    expect(ids([])).toEqual([])
  })
})

describe('a manifest', () => {
  test('announces keys that sign later ones, which may announce others', () => {
    const [first, second, third] = [publisher(), publisher(), publisher()]
    trust().pin([first.trustKey])
    expect(() => verifyCandidate(announcing(second, third), wanted())).toThrow('not by a trusted key')
    verifyCandidate(announcing(first, second), wanted())
    verifyCandidate(announcing(second, third), wanted())
    expect(ids()).toEqual([first, second, third].map(({ trustKey }) => trustKey.keyId))
  })

  test('signed with a key that no longer counts announces nothing', () => {
    const [named, next, own] = [publisher(), publisher(), publisher()]
    trust().pin([named.trustKey])
    verifyCandidate(announcing(named, next), wanted())
    expect(ids([own.trustKey.publicKeyB64])).toEqual([own.trustKey.keyId])
  })

  test('that is refused for its content announces nothing', () => {
    const [by, next] = [publisher(), publisher()]
    trust().pin([by.trustKey])
    const info = { ...announcing(by, next), size: 1 }
    expect(() => verifyCandidate(info, wanted())).toThrow('the file differs from the manifest')
    expect(ids()).toEqual([by.trustKey.keyId])
  })

  test('is rejected as long as no key is known', () => {
    expect(() => verifyCandidate(infoOf(publisher(), '2.0.0', content), wanted())).toThrow('no_trusted_keys')
  })

  test('may be older, and must not skip a required version', () => {
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

describe('the minimum version of a signed release', () => {
  const offered = (by: Publisher, version: string, manifest: object = {}, present = '1.5.0') =>
    verifyCandidate(infoOf(by, version, content, { manifest }), { ...wanted(), version, present })

  test('persists across restarts, and applies to every later offer', () => {
    const by = publisher()
    trust().pin([by.trustKey])
    offered(by, '1.9.0', {}, '2.0.0')
    offered(by, '2.0.0', { minimumVersion: '2.0.0-rc.2' })
    const refusal = 'it is below 2.0.0-rc.2, the lowest version that a signed release allows'
    // Also as an upgrade of the present version: a failed trial leaves the minimum in place.
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

  test('rises with later releases, and never falls', () => {
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

  test('is not set by an untrusted key, or by a refused release', () => {
    const [by, other] = [publisher(), publisher()]
    trust().pin([by.trustKey])
    expect(() => offered(other, '9.0.0', { minimumVersion: '9.0.0' })).toThrow('not by a trusted key')
    expect(() => offered(by, '2.0.0', { minimumVersion: '2.0.0', minFrom: '1.6.0' })).toThrow('needs 1.6.0')
    expect(trust().floor()).toBeUndefined()
    expect(offered(by, '1.4.0').version).toBe('1.4.0')
  })
})

describe('the update settings', () => {
  test('default to auto-update, and outlive a restart', () => {
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

  test('that cannot be read turn updates off and trust no key', () => {
    writeFileSync(join(stateDir, 'config.json'), '{"autoUpdate":tru')
    const settings = settingsStore(stateDir)
    expect(settings.load()).toMatchObject({ autoUpdate: false, trustKeys: [] })
    expect(() => settings.setAutoUpdate(true)).toThrow('config.json is not readable')
  })

  test('that cannot be written apply until the agent ends', () => {
    const settings = settingsStore('/proc/nowhere')
    expect(() => settings.setAutoUpdate(false)).toThrow()
    expect(settings.load().autoUpdate).toBe(false)
  })
})

test('a failed version is not tried for an hour, even if the clock goes backwards', () => {
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
