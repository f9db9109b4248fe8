import { expect, it } from 'vitest'
import { up } from '../../migrations/0034_sso_vouching.ts'
import { type AnyDb, schemaFor } from '../../src/storage/columns.ts'
import { onEveryDatabase } from '../databases.ts'
import { startService } from '../harness.ts'
import { userIdOf } from '../laws/fixture.ts'
import { addOrgUser, addProvider, addRole, buildWorld, roleOf } from '../world.ts'

onEveryDatabase((kind, open) => {
  it('an existing provider vouches for what all members hold who could have configured it', async () => {
    const service = await startService(open)
    const { bakery, garage, harbor } = (await buildWorld(service)).orgs
    const { storage } = service
    const writers = await addRole(service, garage.id, 'writers', ['organizations:write'])
    const heirs = await addRole(service, garage.id, 'heirs', ['devices:read'], writers)
    await addOrgUser(service, 'heir', garage.id, { role: heirs })
    const bakers = await userIdOf(service, 'bakery-admin')
    const ofAll = await addProvider(service, bakery.id, { createdBy: bakers })
    const ofLesser = await addProvider(service, garage.id, {
      createdBy: await userIdOf(service, 'garage-admin'),
    })
    const ofViewer = await addProvider(service, bakery.id, {
      createdBy: await userIdOf(service, 'bakery-viewer'),
      defaultRoleId: roleOf('Org Viewer', 'organization'),
    })
    const ofNobody = await addProvider(service, harbor.id)
    await storage.write(async (tx) => {
      const db = tx as unknown as AnyDb
      for (const column of ['vouches', 'vouched_by'])
        await db.schema.alterTable('sso_providers').dropColumn(column).execute()
      await up(schemaFor(db, kind))
    })
    const found = async (id: string) => {
      const row = await storage.read
        .selectFrom('sso_providers')
        .select(['vouches', 'vouched_by'])
        .where('id', '=', id)
        .executeTakeFirstOrThrow()
      return [row.vouched_by, JSON.parse(row.vouches) as string[]] as const
    }
    const [by, all] = await found(ofAll)
    expect(by).toBe(bakers)
    expect(all).toContain('users:write')
    expect(all).not.toContain('*:*')
    expect((await found(ofLesser))[1]).toEqual(['devices:read', 'organizations:write'])
    const [nobody, min] = await found(ofViewer)
    expect(nobody).toBeNull()
    expect(min).toContain('devices:read')
    expect(min.filter((permission) => !permission.endsWith(':read'))).toEqual([])
    expect(await found(ofNobody)).toEqual([null, []])
  })
})
