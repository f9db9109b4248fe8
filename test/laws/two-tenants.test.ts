import { describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import { systemClock } from '../../src/core/time.ts'
import { onEveryDatabase } from '../databases.ts'
import { isSoak, isTried, matrixOn } from '../depth.ts'
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

/** In `npm test` one side tries every value of a field on SQLite, and the other one of each. */
const valuesOf = (from: number) => (isSoak || from === 0 ? 'every' : 'one')

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
        const entries = matrixOn(kind, called(api)).filter(({ entry }) => entry.access.who !== 'agent')
        await watch.callEverything(entries, valuesOf(from))
        expect(watch.touches).toEqual([])
        // The provider signs in members; unknown users are only invited.
        expect(came).toEqual(['200', '200', '200', '200', 'invitation_pending', 'invitation_pending'])

        expect([...watch.called]).toEqual(entries.map(({ name }) => name))
        expect(Math.min(...watch.worked.values())).toBeGreaterThan(kind === 'sqlite' || isSoak ? 10 : 0)
        expect(await watch.stillActing()).toEqual(on.sides[from].callers.map(({ name }) => name))
        await line.close()
      },
    )
  })
})
