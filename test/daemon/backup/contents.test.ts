import { readdir } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { files, isKept, ownTables, secrets, tables } from '../../../daemon/backup/contents.ts'
import { listRestoredAccess, type RevocableKind } from '../../../daemon/backup/restored-access.ts'
import { readConfig } from '../../../daemon/config.ts'
import { api } from '../../../src/api.ts'
import { secretNames } from '../../../src/core/secret-names.ts'
import { listTables } from '../../../src/storage/backup/catalog.ts'
import { createMark } from '../../../src/storage/backup/restore-mark.ts'
import type { AnyDb } from '../../../src/storage/columns.ts'
import { blockWrites } from '../../../src/storage/copy/moved.ts'
import { createProgress } from '../../../src/storage/copy/progress.ts'
import { raiseOldestVersion } from '../../../src/storage/oldest-version.ts'
import { onEveryDatabase, openMigrated, temporaryFolder } from '../../databases.ts'
import { adminEmail, clientOf } from '../../harness.ts'
import { ServeProcess, until } from '../process.ts'
import { emptyPlace, kinds } from './filled.ts'

onEveryDatabase((_, open) => {
  describe('the list of tables', () => {
    it('has the marks of what is done to a database, each of which is made only meanwhile', async () => {
      const { storage } = await open()
      const names = async () =>
        (await listTables(storage.read as AnyDb, storage.dialect)).map(({ name }) => name)
      const before = await names()
      await storage.write(async (tx) => {
        const db = tx as AnyDb
        await createMark(db)
        await createProgress(db, 'elsewhere', '2026-03-01T12:00:00.000Z')
        await raiseOldestVersion(db, { version: '99.0.0', migration: '9999_later' })
        const move = { target: 'elsewhere', at: '2026-03-01T12:00:00.000Z' }
        await blockWrites(db, storage.dialect, move, () => false)
      })
      const marks = (await names()).filter((name) => !before.includes(name))
      expect(marks.length).toBeGreaterThan(3)
      const handled = (name: string) => ownTables.find(([pattern]) => pattern.test(name))?.[1]
      expect(marks.filter((name) => handled(name) === undefined)).toEqual([])
      expect(marks.filter((name) => handled(name) === 'kept')).toEqual([])
    })

    it('has each table of a migrated database, and no other', async () => {
      const { storage } = await open()
      const live = (await listTables(storage.read as AnyDb, storage.dialect)).map(({ name }) => name)
      const own = live.filter((name) => ownTables.some(([pattern]) => pattern.test(name)))
      expect(live.filter((name) => !own.includes(name)).sort()).toEqual(Object.keys(tables).sort())
    })

    it('has tables with a primary key alone, by which their rows are read in order', async () => {
      const { storage } = await open()
      const live = await listTables(storage.read as AnyDb, storage.dialect)
      expect(live.filter(({ name, key }) => isKept(name) && key.length === 0)).toEqual([])
    })

    it('has tables that migrations leave empty, as a restore needs them', async () => {
      const { storage } = await open()
      for (const name of Object.keys(tables).filter(isKept)) {
        const row = await (storage.read as AnyDb).selectFrom(name).selectAll().limit(1).executeTakeFirst()
        expect([name, row]).toEqual([name, undefined])
      }
    })
  })
})

/** What lets somebody in or is trusted, by the names of columns. */
const letsIn =
  /hash$|secret|password|(^|_)token|public_key|private_key|certificate|jwks|^role_id$|^permissions$|^claims$/

/** What a restore does about each kept table of the kind: the name of its list in `revived`, or why it has none. */
const access: Record<string, RevocableKind | 'administrators' | 'memberships' | `-- ${string}`> = {
  agent_keys: 'agents',
  agent_rotations: 'agents',
  api_keys: 'api-keys',
  audit_keys: '-- keys of the service, which vouch for each other',
  devices: 'agents',
  enrollment_keys: 'enrollment-keys',
  idempotency_keys: '-- a reply is repeated for its caller alone, who has to be let in first',
  invitations: 'invitations',
  organization_memberships: 'memberships',
  partner_memberships: 'memberships',
  recovery_codes: 'recovery-codes',
  role_permissions: '-- through a membership',
  saml_keys: '-- the keys of the service at its providers',
  sso_assertions: '-- used ones, which are refused',
  sso_identities: 'sso-links',
  sso_providers: 'sso-providers',
  trust_issuers: '-- where keys are published: a policy has to trust the issuer',
  trust_policies: 'trust-policies',
  trust_tokens: '-- used ones, which are refused',
  users: 'administrators',
  webhooks: '-- paused',
}

describe('what gives access again after a restore', () => {
  it('is listed, or it is said why not, for each table that is kept', async () => {
    const { storage } = await openMigrated('sqlite')
    const live = await listTables(storage.read as AnyDb, 'sqlite')
    const found = live.filter(
      ({ name, columns }) => isKept(name) && columns.some((column) => letsIn.test(column.name)),
    )
    expect(found.map(({ name }) => name).sort()).toEqual(Object.keys(access))
    const listed = await listRestoredAccess(storage.read, '2026-03-01T12:00:00.000Z')
    const kinds = new Set(Object.values(access).filter((one) => !one.startsWith('-- ')))
    expect([...kinds].sort()).toEqual(Object.keys(listed).sort())
  })
})

describe('the list of secrets', () => {
  it('has each secret that a service reads from its settings, and no other', async () => {
    const asked = new Set<string>()
    const complete: Record<string, string>[] = [
      {},
      { AUDIT_ARCHIVE_S3_BUCKET: 'archive', AGENT_BINARY_S3_BUCKET: 'binaries', BINARY_SOURCE: 'local' },
      { SMTP_HOST: 'mail.example.com', SMTP_USER: 'svc', SMTP_PASSWORD: 'x', MAIL_FROM: 'svc@example.com' },
      { BACKUP_TARGET: 's3://backups/svc', BACKUP_SCHEDULE: '30 2 * * *', DRILL_SCHEDULE: '30 4 * * 0' },
    ]
    for (const env of complete) {
      const watched = new Proxy({ ...env, SVC_DATA_DIR: await temporaryFolder() } as Record<string, string>, {
        get(target, name: string) {
          asked.add(name)
          return target[name]
        },
      })
      readConfig(watched)
    }
    const open = ['LOG_LEVEL', 'OUTBOUND_CA', 'RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS', 'SMTP_CA']
    const fromFiles = [...asked].flatMap((name) => /^(.*?)(?:_PREVIOUS)?_FILE$/.exec(name)?.[1] ?? [])
    const read = new Set(fromFiles.filter((name) => !open.includes(name)))
    expect([...read].sort()).toEqual(Object.keys(secrets).sort())
    const kept = Object.entries(secrets).flatMap(([name, [handling]]) => (handling === 'kept' ? [name] : []))
    expect(kept.sort()).toEqual([...secretNames].sort())
  })
})

describe('the list of files', () => {
  it.each(kinds)('has each file that a service writes into its data directory, on %s', async (kind) => {
    const place = await emptyPlace(kind)
    const { dataDir } = place
    // Nobody gave a password, and no secret.
    const env = { SVC_ADMIN_EMAIL: adminEmail, AUDIT_CHECKPOINT_SECONDS: '1' }
    const service = new ServeProcess(place, { env })
    const client = clientOf(await service.listening())
    await client.call(api.auth.forgotPassword, { body: { email: adminEmail } })
    const paths = async () =>
      (await readdir(dataDir, { recursive: true })).map((path) => path.replaceAll('\\', '/'))
    await until(async () => {
      const all = await paths()
      return all.includes('checkpoints/system') && all.some((path) => /^outbox\/.*\.json$/.test(path))
    }, 60_000)
    const found = new Set(await paths())
    await service.stop()
    for (const path of await paths()) found.add(path)
    const folders = ['checkpoints', 'outbox']
    const unknown = [...found].filter(
      (path) => !folders.includes(path) && !files.some(([pattern]) => pattern.test(path)),
    )
    expect(unknown).toEqual([])
    const own = kind === 'sqlite' ? ['svc.sqlite', 'svc.lock'] : []
    expect([...found]).toEqual(expect.arrayContaining([...own, 'secrets.json', 'first-password']))
  })
})
