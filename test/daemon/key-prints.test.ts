import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { newId } from '../../src/core/new-id.ts'
import { onEveryDatabase, openEmpty } from '../databases.ts'
import { adminEmail, adminPassword, serviceOn, startService, testSecrets } from '../harness.ts'
import { failedStart, ServeProcess } from './process.ts'

const fresh = () => randomBytes(32).toString('base64')
const accepted = (reason: string) => /ACCEPT_NEW_KEYS=([0-9a-f]{16})\b/.exec(reason)![1]!
const reasonOf = (starting: Promise<unknown>): Promise<string> =>
  starting.then(
    () => 'it started',
    (error: Error) => error.message,
  )

onEveryDatabase((kind, open) => {
  it('a lost secrets.json stops the start in one line; the file or ACCEPT_NEW_KEYS repairs it', async () => {
    const { dataDir, databaseUrl } = await open()
    const env = { SVC_ADMIN_EMAIL: adminEmail, SVC_ADMIN_PASSWORD: adminPassword }
    const place = { dataDir, databaseUrl }
    const first = new ServeProcess(place, { env })
    await first.listening()
    await first.stop()
    const file = join(dataDir, 'secrets.json')
    const kept = await readFile(file, 'utf8')
    await rm(file)

    const refused = await failedStart(place, { env })
    expect(refused).toMatchObject({ code: 1, stdout: '' })
    expect(refused.stderr).toMatch(/^svc serve: [^\n]*Restore secrets\.json[^\n]*\n$/)
    for (const name of Object.keys(testSecrets)) expect(refused.stderr).toContain(name)
    for (const secret of Object.values(JSON.parse(await readFile(file, 'utf8')) as object))
      expect(refused.stderr).not.toContain(secret)

    const lost = await readFile(file, 'utf8')
    await writeFile(file, kept)
    const restored = new ServeProcess(place, { env })
    await restored.listening()
    await restored.stop()

    await writeFile(file, lost)
    const ACCEPT_NEW_KEYS = accepted(refused.stderr)
    const anew = new ServeProcess(place, { env: { ...env, ACCEPT_NEW_KEYS } })
    await anew.listening()
    await anew.stop()
    const again = new ServeProcess(place, { env })
    await again.listening()
    await again.stop()
    await writeFile(file, kept)
    expect((await failedStart(place, { env: { ...env, ACCEPT_NEW_KEYS } })).stderr).toContain('other keys')
  })

  it.each([
    'JWT_SECRET',
    'APP_ENCRYPTION_KEY',
    'ENROLLMENT_KEY_PEPPER',
    'MFA_RECOVERY_CODE_PEPPER',
    'AUDIT_SIGNING_KEY',
  ])('a second replica with a different %s is refused, and changes nothing', async (name) => {
    const own = { AUDIT_SIGNING_KEY: fresh() }
    const service = await startService(open, { env: own })
    const reason = await reasonOf(serviceOn(service, { env: { ...own, [name]: fresh() } }))
    expect(reason).toMatch(new RegExp(`^This database was used with other keys: ${name}\\. `))
    await serviceOn(service, { env: own })
  })

  it('of two replicas that start at once with different keys one is refused', async () => {
    const database = await open()
    const starts = await Promise.allSettled([
      serviceOn(database, { env: { APP_ENCRYPTION_KEY: fresh() } }),
      serviceOn(database, { env: { APP_ENCRYPTION_KEY: fresh() } }),
    ])
    expect(starts.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  })

  it('a changed key with its _PREVIOUS is accepted, one replica after the other', async () => {
    const service = await startService(open)
    const APP_ENCRYPTION_KEY = fresh()
    const changed = { APP_ENCRYPTION_KEY, APP_ENCRYPTION_KEY_PREVIOUS: testSecrets.APP_ENCRYPTION_KEY }
    const next = await serviceOn(service, { env: changed })
    // The first replica does not know it, so it is not used yet.
    const again = await serviceOn(service)
    await next.close()
    await again.close()
    await service.close()
    await serviceOn(service, { env: changed })
    expect(await reasonOf(serviceOn(service))).toContain('APP_ENCRYPTION_KEY')
    await serviceOn(service, { env: { APP_ENCRYPTION_KEY_PREVIOUS: APP_ENCRYPTION_KEY } })
    await serviceOn(service, { env: changed })
    await serviceOn(service, { env: { APP_ENCRYPTION_KEY } })
    await expect(
      serviceOn(service, { env: { APP_ENCRYPTION_KEY: fresh(), APP_ENCRYPTION_KEY_PREVIOUS: fresh() } }),
    ).rejects.toThrow(/other keys: APP_ENCRYPTION_KEY, AUDIT_SIGNING_KEY\. /)
  })

  it('an empty database beside signed checkpoints stops the start', async () => {
    const { databaseUrl } = await openEmpty(kind)
    const { dataDir } = await openEmpty('sqlite')
    const folder = join(dataDir, 'checkpoints')
    await mkdir(folder)
    await writeFile(join(folder, newId()), 'signed')
    await expect(serviceOn({ dataDir, databaseUrl })).rejects.toThrow(
      /^The database is empty, and .*checkpoints/,
    )
    await rm(folder, { recursive: true })
    const { status } = await (await serviceOn({ dataDir, databaseUrl })).client().call(api.service.health)
    expect(status).toBe('ok')
  })

  it('the stored fingerprints reveal no key', async () => {
    const { storage } = await startService(open)
    const rows = await storage.read.selectFrom('key_prints').selectAll().execute()
    expect(rows).toHaveLength(5)
    for (const { print } of rows) expect(print).toMatch(/^[0-9a-f]{24}$/)
  })
})
