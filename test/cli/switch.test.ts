import { afterAll, beforeAll, expect, it } from 'vitest'
import { FakeService, me, uuid } from './fake-service.ts'
import { Home } from './run.ts'

const home = new Home()
const membership = (n: number, name: string, slug: string) => ({
  scope: 'organization',
  id: uuid(n),
  name,
  slug,
  role: 'Org Admin',
})
const memberships = [membership(10, 'Blue Bakery', 'blue-bakery'), membership(11, 'Red\nCafe', 'red-cafe')]
let switchBody: unknown
const service = new FakeService({
  'GET /auth/me': { body: { ...me, memberships } },
  'POST /auth/switch': ({ body }) => {
    switchBody = body
    const tokens = { accessToken: 'access-2', refreshToken: 'refresh-2', expiresInSeconds: 900 }
    return { body: { user: me.user, mfaRequired: false, tokens } }
  },
})

beforeAll(async () => {
  await service.start()
  home.signIn(service.url)
})

afterAll(async () => {
  await service.stop()
  home.remove()
})

it.each([
  ['named', ['red-cafe']],
  ['named by --org', ['--org', 'red-cafe']],
])('svc auth switch switches to the membership that is %s', async (_, words) => {
  switchBody = undefined
  const { code, stderr } = await home.run(['auth', 'switch', ...words])
  expect([code, stderr]).toEqual([0, ''])
  expect(switchBody).toEqual({ orgId: uuid(11) })
})

it('svc auth switch without arguments selects the default membership, regardless of SVC_ORG', async () => {
  const { code } = await home.run(['auth', 'switch'], { env: { SVC_ORG: 'red-cafe' } })
  expect([code, switchBody]).toEqual([0, {}])
})
