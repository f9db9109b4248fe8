import { request } from 'node:https'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { api } from '../../../src/api.ts'
import { hasOpenssl, testCertificate } from '../../cli/network.ts'
import { inTurn } from '../../databases.ts'
import { startService, type TestService } from '../../harness.ts'
import { buildWorld } from '../../world.ts'
import { certifiedProvider } from '../certified.ts'
import { addMember, browser, codeIn } from '../sign-in/sign-in-fixture.ts'

const account = { email: 'dora@bakery.example.com', name: 'Dora Bakes', email_verified: true }

inTurn((open) => {
  describe.skipIf(!hasOpenssl)('a certified provider with signed user info', () => {
    const certificate = testCertificate()
    let service: TestService
    let idp: Awaited<ReturnType<typeof certifiedProvider>>
    beforeAll(async () => {
      const env = { OUTBOUND_ALLOW_CIDRS: '127.0.0.0/8', OUTBOUND_CA_FILE: certificate.file }
      service = await startService(open, { env })
    })
    afterAll(() => idp.close())

    it('is accepted', async () => {
      const { tokens, orgs } = await buildWorld(service)
      const redirectUri = `${service.url}/api/v1/sso/callback`
      idp = await certifiedProvider(certificate, {
        redirectUri,
        accounts: { dora: account },
        userInfoAlgorithm: 'RS256',
      })
      await addMember(service, orgs.bakery.id, account.email)
      const its = { name: 'Certified', type: 'oidc', issuer: idp.issuer, clientId: 'svc' } as const
      const body = { ...its, clientSecret: 'hush', autoProvision: false }
      const admin = service.client(tokens.bakery)
      const { data } = await admin.call(api.ssoProviders.create, { body })
      await admin.call(api.ssoProviders.setStatus, { params: { id: data.id }, body: { status: 'active' } })

      const by = browser()
      const begun = await by.open(`${service.url}/api/v1/sso/login/${orgs.bakery.id}?redirect=/devices`)
      const ask = jarred()
      const page = await ask(begun.location)
      const signedIn = await ask(page, 'login=dora')
      const back = await ask(signedIn)
      const { location } = await by.open(back)
      expect(codeIn(location)).not.toBe('')
      const row = await service.storage.read
        .selectFrom('sso_identities')
        .select('profile')
        .executeTakeFirstOrThrow()
      expect(JSON.parse(row.profile)).toMatchObject({ ...account, aud: 'svc', iss: idp.issuer })
    })
  })
})

/** A browser with a cookie jar at the provider; it returns the next redirect. */
function jarred(): (url: string, form?: string) => Promise<string> {
  const jar = new Map<string, string>()
  return (url, form) =>
    new Promise((resolve, reject) => {
      const headers = {
        cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; '),
        ...(form !== undefined && { 'content-type': 'application/x-www-form-urlencoded' }),
      }
      const method = form === undefined ? 'GET' : 'POST'
      const sent = request(url, { method, headers, rejectUnauthorized: false }, (reply) => {
        for (const line of reply.headers['set-cookie'] ?? []) {
          const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
          jar.set(name, value)
        }
        reply.resume()
        reply.on('end', () => resolve(new URL(reply.headers.location ?? '', url).href))
      })
      sent.on('error', reject)
      sent.end(form)
    })
}
