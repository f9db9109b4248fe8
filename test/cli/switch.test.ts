import { afterAll, beforeAll, expect, it } from 'vitest'
import { FakeService, me, uuid } from './fake-service.ts'
import { Home } from './run.ts'

const home = new Home()
const membership = (n: number, name: string, slug: string) => ({
  ...{ scope: 'organization', id: uuid(n), name, slug, role: 'Org Admin' },
})
const memberships = [membership(10, 'Blue Bakery', 'blue-bakery'), membership(11, 'Red\nCafe', 'red-cafe')]
let asked: unknown
const service = new FakeService({
  'GET /auth/me': { body: { ...me, memberships } },
  'POST /auth/switch': ({ body }) => {
    asked = body
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
  ['named by the flag that says an organization everywhere', ['--org', 'red-cafe']],
])('svc auth switch goes on in the membership that is %s', async (_, words) => {
  asked = undefined
  const { code, stderr } = await home.run(['auth', 'switch', ...words])
  expect([code, stderr]).toEqual([0, ''])
  expect(asked).toEqual({ orgId: uuid(11) })
})

it('svc auth switch goes on in the one a sign-in would choose, whatever organization commands are about', async () => {
  const { code } = await home.run(['auth', 'switch'], { env: { SVC_ORG: 'red-cafe' } })
  expect([code, asked]).toEqual([0, {}])
})
