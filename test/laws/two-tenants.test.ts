import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { isSoak, isTried } from '../depth.ts'
import { startService } from '../harness.ts'
import { identityProvider } from '../sso/sign-in/identity-provider.ts'
import { buildWorld } from '../world.ts'
import { called } from './fields.ts'
import { buildTwoTenants, Watch } from './two-tenants.ts'
import { Line } from './wire.ts'

/** Enough for thousands of calls on a busy machine. */
const patience = 300_000

/** The endpoints that show users. */
const waysToLook = ['users.list', 'users.show', 'roles.holders', 'permissions.explain']

/** The effect of a value does not depend on the database, so on Postgres `npm test` tries one per field. */
const valuesOn = { sqlite: 'every', postgres: isSoak ? 'every' : 'one' } as const

const sides = [
  ['globex', 1],
  ['bakery', 0],
] as const

onEveryDatabase((kind, open) => {
  describe('an account of two tenants', { timeout: patience }, () => {
    it.each(sides.filter((_, index) => isTried(kind, index, 2)))(
      'is unchanged for the other tenant, whatever %s and its users call',
      async (_name, from) => {
        const idp = identityProvider(systemClock)
        const env = { PUBLIC_URL: 'https://svc.example.com', DASHBOARD_URL: 'https://app.example.com' }
        const service = await startService(open, { outside: { outbound: idp.outbound }, env })
        const on = await buildTwoTenants(service, await buildWorld(service), idp)
        const line = new Line(service.url)
        const watch = new Watch(on, on.sides[from], line)
        await watch.begin()
        expect(watch.looks).toEqual(expect.arrayContaining(waysToLook))
        const came = await watch.signInEverybody()
        await watch.callEverything(valuesOn[kind])
        expect(watch.touches).toEqual([])
        // The provider signs in members; unknown users are only invited.
        expect(came).toEqual([
          ...['200', '200', '200', '200'],
          ...['invitation_pending', 'invitation_pending'],
        ])

        const entries = called(api).filter(({ entry }) => entry.access.who !== 'agent')
        expect([...watch.called]).toEqual(entries.map(({ name }) => name))
        expect(Math.min(...watch.worked.values())).toBeGreaterThan(10)
        expect(await watch.stillActing()).toEqual(on.sides[from].callers.map(({ name }) => name))
        await line.close()
      },
    )
  })
})
