import { beforeAll, describe, expect, it } from 'vitest'
import type { BackupSummary } from '../../../daemon/backup/backup.ts'
import { revocableKinds } from '../../../daemon/backup/restored-access.ts'
import { resetFactor } from '../../../daemon/factor-reset.ts'
import { createCipher } from '../../../src/core/cipher.ts'
import { totpAad } from '../../../src/identity/factors/proof.ts'
import { mailContext } from '../../../src/messages/rules.ts'
import type { Storage } from '../../../src/storage/open.ts'
import { openMigrated } from '../../databases.ts'
import { adminEmail, startService, testSecrets } from '../../harness.ts'
import { rowsOf } from '../../table-dump.ts'
import { bytesOf, fileOf, linesOf, packed, sealed, sectionOf, withCell, withHead } from './archives.ts'
import { svc } from './binary.ts'
import {
  backupOf,
  emptyPlace,
  type Filled,
  filledPlace,
  inEnvironmentOf,
  kinds,
  restored,
  withStorage,
} from './filled.ts'

const otherKey = 'xm1oHhdB0bOsHdQEhNmQkK5UXq1nB7F8lkT6nGkJ3sA='

let filled: Filled
let backup: BackupSummary
let body: string[]
beforeAll(async () => {
  filled = await filledPlace('sqlite')
  await withStorage(filled, ({ write }) =>
    write((tx) => {
      const cipher = createCipher([testSecrets.APP_ENCRYPTION_KEY])
      return Promise.all([
        tx
          .updateTable('users')
          .set({ mfa_method: null, totp_secret: null })
          .where('is_system', '=', 1)
          .execute(),
        tx
          .updateTable('users')
          .set((eb) => ({ mfa_method: eb.val('totp') }))
          .where('email', '=', adminEmail)
          .execute(),
        tx
          .selectFrom('users')
          .select('id')
          .where('email', '=', adminEmail)
          .executeTakeFirstOrThrow()
          .then(({ id }) =>
            tx
              .updateTable('users')
              .set({ totp_secret: cipher.encrypt('JBSWY3DPEHPK3PXP', totpAad(id)) })
              .where('id', '=', id)
              .execute(),
          ),
        tx
          .updateTable('sso_providers')
          .set({ name: 'Okta', status: 'active' })
          .where('org_id', '=', filled.world.orgs.bakery.id)
          .execute(),
        tx
          .updateTable('sso_providers')
          .set({ status: 'testing' })
          .where('org_id', '!=', filled.world.orgs.bakery.id)
          .execute(),
      ])
    }),
  )
  backup = await backupOf(filled)
  body = linesOf(await bytesOf(backup.file)).slice(0, -1)
})

describe.each(kinds)('a restore to %s', (kind) => {
  it('lists what gives access again, and ends the kinds that are named', async () => {
    const kept = await restored(await emptyPlace(kind), backup.file)
    const names = (kind: keyof typeof kept.revived) => kept.revived[kind].map(({ name }) => name)
    expect(names('administrators')).toEqual([adminEmail])
    expect(kept.revived.agents).toHaveLength(kept.agents)
    expect(kept.revived['api-keys']).toHaveLength(kept.apiKeys)
    expect(kept.revived['enrollment-keys']).toHaveLength(kept.enrollmentKeys)
    expect(kept.apiKeys).toBeGreaterThan(0)
    expect(kept.agents).toBeGreaterThan(0)
    expect([kept.ssoProviders, names('sso-providers')]).toEqual([1, ['Okta']])
    expect([kept.ssoLinks, names('sso-links').length]).toEqual([1, 1])
    expect(names('memberships')).toContain('bakery-admin@example.com')
    expect(kept.memberships).toBe(names('memberships').length)

    const place = await emptyPlace(kind)
    const ended = [...revocableKinds]
    const { revoked, revived } = await restored(place, backup.file, { revoke: ended })
    expect(revoked).toEqual(ended)
    for (const one of ended.filter((kind) => kind !== 'agents'))
      expect([one, revived[one]]).toEqual([one, []])
    const after = await withStorage(place, rowsOf)
    const hashes = after.get('devices')!.map((row) => String(row.token_hash))
    expect(hashes.filter((one) => !one.startsWith('ended '))).toEqual([])
    expect(after.get('agent_rotations')).toEqual([])
    // With the key that it had, a machine would get a token again.
    expect(after.get('agent_keys')).toEqual([])
    expect(new Set(after.get('sso_providers')!.map(({ status }) => status))).toEqual(new Set(['inactive']))
    expect(after.get('sso_identities')).toEqual([])
  })

  it('refuses rows that the database does not accept, and says what to do', async () => {
    const twin = (() => {
      const { from, columns } = sectionOf(body, 'users')
      const email = (JSON.parse(body[from + 1]!) as unknown[])[columns.indexOf('email_key')]
      return withCell(body, 'users', { row: 1, column: 'email_key', value: () => email })
    })()
    const dangling = withCell(body, 'sites', { column: 'org_id', value: () => 'nobody' })
    for (const [lines, says] of [
      [twin, /is damaged: two of its rows have the same users\.email_key.*Restore another backup/],
      [dangling, /is damaged: a row refers to one that is not in it.*Restore another backup/],
    ] as const) {
      const place = await emptyPlace(kind)
      const file = await fileOf(packed(sealed(lines)))
      const failure = restored(place, file)
      await expect(failure).rejects.toThrow(says)
      await expect(failure).rejects.not.toThrow(/repeat/)
      // Another archive starts over.
      await restored(place, backup.file)
    }
  })

  it('leaves a way in for an administrator whose factor no key opens', async () => {
    const place = await emptyPlace(kind)
    const without = { 'without-keys': ['APP_ENCRYPTION_KEY', 'AUDIT_SIGNING_KEY'] }
    await restored(place, backup.file, without, { APP_ENCRYPTION_KEY: otherKey })
    const reset = (email: string, env = {}) =>
      inEnvironmentOf(place, () => resetFactor(email, { 'data-dir': place.dataDir }), env)
    await expect(reset(adminEmail)).rejects.toThrow(/opens with the present APP_ENCRYPTION_KEY/)
    const lost = { APP_ENCRYPTION_KEY: otherKey }
    // A factor that works is kept from whoever has not brought the keys along.
    const whole = await emptyPlace(kind)
    await restored(whole, backup.file)
    await expect(
      inEnvironmentOf(whole, () => resetFactor(adminEmail, { 'data-dir': whole.dataDir }), lost),
    ).rejects.toThrow(/give the keys of the service/)
    await expect(reset('bakery-admin@example.com', lost)).rejects.toThrow(/is no system administrator/)
    expect(await reset(adminEmail.toUpperCase(), lost)).toMatchObject({ email: adminEmail })
    await expect(reset(adminEmail, lost)).rejects.toThrow(/has no second factor/)
    const entries = await withStorage(place, ({ read }) =>
      read
        .selectFrom('audit_logs')
        .select(['action', 'resource_name'])
        .where('action', '=', 'user.mfa.reset')
        .where('chain', '=', 'system')
        .execute(),
    )
    expect(entries).toContainEqual({ action: 'user.mfa.reset', resource_name: adminEmail })
    const mails = await withStorage(place, ({ read }) =>
      read.selectFrom('mails').select(['id', 'content']).where('kind', '=', 'factors-changed').execute(),
    )
    const cipher = createCipher([otherKey])
    const letters = mails.map(({ id, content }) => cipher.tryDecrypt(content, mailContext(id)))
    expect(letters).toEqual([expect.stringContaining(adminEmail)])
  })
})

it('a sole administrator who has lost the second factor gets in again, by whoever runs the service', async () => {
  const service = await startService(() => openMigrated('sqlite'))
  const place = { dataDir: service.dataDir, databaseUrl: undefined }
  await service.close()
  await withStorage(place, (storage) => giveFactor(storage))
  const reset = (...args: string[]) => svc(['db', 'reset-mfa', adminEmail, ...args], place)
  const refused = await reset()
  expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/svc users reset-mfa.* --lost/s)])
  expect(await reset('--lost')).toMatchObject({ code: 0, stdout: expect.stringContaining(adminEmail) })
  const { user, entry } = await withStorage(place, async ({ read }) => ({
    user: await read.selectFrom('users').select(['mfa_method', 'totp_secret']).executeTakeFirstOrThrow(),
    entry: await read
      .selectFrom('audit_logs')
      .select('canonical')
      .where('action', '=', 'user.mfa.reset')
      .executeTakeFirstOrThrow(),
  }))
  expect(user).toEqual({ mfa_method: null, totp_secret: null })
  expect(JSON.parse(entry.canonical).details).toMatchObject({ offline: true, lost: true })
})

/** As after svc mfa enable, with the key of the service. */
const giveFactor = (storage: Storage) =>
  storage.write(async (tx) => {
    const { id } = await tx.selectFrom('users').select('id').executeTakeFirstOrThrow()
    const sealed = createCipher([testSecrets.APP_ENCRYPTION_KEY]).encrypt('JBSWY3DPEHPK3PXP', totpAad(id))
    await tx.updateTable('users').set({ mfa_method: 'totp', totp_secret: sealed }).execute()
  })

describe('the head of an archive', () => {
  const twice = () => {
    const { from } = sectionOf(body, 'users')
    return body.toSpliced(from + 1, 0, body[from + 1]!)
  }
  it.each<[string, () => string[], RegExp]>([
    ['a row twice', twice, /a row of users stands in it twice/],
    [
      'another end of a chain',
      () => withHead(body, (head) => (head.heads[0]!.seq += 1)),
      /its head names other ends of audit chains than its rows/,
    ],
    [
      'a key less',
      () => withHead(body, (head) => head.keys.pop()),
      /its head names other keys than its rows/,
    ],
    [
      'a counter that is behind',
      () => withHead(body, (head) => delete head.counters.set_aside),
      /its counter of set_aside is at 0, before a row/,
    ],
    [
      'a line that is longer than any row',
      () => withCell(body, 'scripts', { column: 'content', value: () => 'x'.repeat(65 * 2 ** 20) }),
      /a line is too long/,
    ],
  ])('is refused with %s, before anything is written', async (_, make, says) => {
    const place = await emptyPlace('sqlite')
    const file = await fileOf(packed(sealed(make())))
    await expect(restored(place, file)).rejects.toThrow(says)
  })
})
