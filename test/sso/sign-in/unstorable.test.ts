import { describe, expect, it } from 'vitest'
import { tokenHash } from '../../../src/identity/sessions/tokens.ts'
import { SsoFailure } from '../../../src/sso/failures.ts'
import { parseXml } from '../../../src/sso/saml/xml.ts'
import { cookieName } from '../../../src/sso/sign-in/web.ts'
import { inTurn } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { jo } from '../saml/identity-provider.ts'
import { post, responseTo, saml, samlEnv } from './posting.ts'
import { addMember, browser, codeIn, errorIn, person, start } from './sign-in-fixture.ts'

/** Text that a database refuses, or returns altered. */
const odd = { 'a NUL': 'a\u0000b', 'half a surrogate pair': 'a\ud800', 'the other half': '\udc00a' }

inTurn((open) => {
  describe('text that a database cannot store, sent by an identity provider', () => {
    it('in a claim fails the sign-in, names the field, and leaves nothing behind', async () => {
      const { service, bakery, provider, idp, signIn } = await start(open)
      const mapping = { email: 'email', name: 'name', groups: 'groups' }
      await provider({ attributeMapping: mapping, autoProvision: false })
      await addMember(service, bakery.id, person.email)
      const { length } = await service.storage.read.selectFrom('sso_exchanges').selectAll().execute()
      const news = await newEntries(service)
      for (const text of Object.values(odd)) {
        const said = {
          subject: { sub: text },
          email: { email: `${text}@bakery.example.com` },
          name: { name: text },
          groups: { groups: ['bakers', text] },
        }
        for (const [field, claims] of Object.entries(said)) {
          idp.idClaims = claims
          const { status, location } = await signIn({ ...person, ...claims })
          expect([field, status, errorIn(location), codeIn(location)]).toEqual([
            field,
            302,
            'sso_text_invalid',
            '',
          ])
          expect(await news()).toMatchObject([
            { details: { reason: 'sso_text_invalid', detail: expect.stringMatching(`^${field} has a NUL`) } },
          ])
        }
      }
      const left = await service.storage.read.selectFrom('sso_exchanges').selectAll().execute()
      expect(left).toHaveLength(length)
      expect(await service.storage.read.selectFrom('sso_identities').selectAll().execute()).toEqual([])
      // Other claims are stored as JSON, in which every character can be escaped.
      idp.idClaims = { nickname: odd['a NUL'], 'a\u0000': odd['half a surrogate pair'] }
      expect(codeIn((await signIn()).location)).not.toBe('')
    })

    it('in a callback parameter is refused by name, and in a cookie is ignored', async () => {
      const { service, provider } = await start(open)
      await provider()
      for (const field of ['state', 'code', 'error', 'error_description', 'iss']) {
        const reply = await fetch(`${service.url}/api/v1/sso/callback?state=x&${field}=a%00b`, {
          redirect: 'manual',
          headers: { accept: 'application/json' },
        })
        const { code, details } = (await reply.json()) as { code: string; details: { path: string }[] }
        expect([field, reply.status, code]).toEqual([field, 400, 'invalid_request'])
        expect(details.map(({ path }) => path)).toContain(`query.${field}`)
      }
      const form = new URLSearchParams({ SAMLResponse: 'eA==', RelayState: 'a\u0000b' })
      const posted = await fetch(`${service.url}/api/v1/sso/saml/acs`, {
        method: 'POST',
        body: form,
        redirect: 'manual',
      })
      expect([posted.status, await posted.text()]).toEqual([400, expect.stringContaining('body.RelayState')])
      // The cookie names the provider of the sign-in.
      const state = 'f'.repeat(64)
      for (const value of ['x.%00', 'x.a%00b']) {
        const cookie = `${cookieName(tokenHash(state))}=${value}`
        const back = await fetch(`${service.url}/api/v1/sso/callback?state=${state}&code=c`, {
          redirect: 'manual',
          headers: { cookie },
        })
        expect([back.status, errorIn(back.headers.get('location')!)]).toEqual([302, 'session_expired'])
      }
    })

    it('is rejected as a character reference in any XML document that is read', () => {
      for (const reference of [
        '&#0;',
        '&#x0;',
        '&#xD800;',
        '&#55296;',
        '&#xDFFF;',
        '&#x1;',
        '&#xFFFE;',
        '&#x110000;',
      ]) {
        for (const xml of [
          `<a>b${reference}</a>`,
          `<a b="${reference}"/>`,
          `<a>&amp;&#65;<b>${reference}</b></a>`,
        ]) {
          expect(() => parseXml(xml), xml).toThrow(SsoFailure)
        }
      }
      expect(parseXml('<a b="&#x1F950;">&#9;&#xe9;</a>')).toMatchObject({ text: '\té' })
    })

    it('in an assertion fails the sign-in with a named error, and leaves nothing behind', async () => {
      const on = await start(open, samlEnv)
      const { service, bakery, clock } = on
      await on.provider({ ...saml })
      await addMember(service, bakery.id, jo)
      const enter = async (said: object) => {
        const by = browser()
        const { location } = await by.open(`${service.url}/api/v1/sso/login/${bakery.id}`)
        return post(by, service, responseTo(location, clock(), { said }))
      }
      for (const text of ['a&#0;b', 'a\u0000b']) {
        for (const said of [
          { nameId: text, attributes: { email: [jo] } },
          { attributes: { email: [`${text}@bakery.example.com`] } },
          { attributes: { email: [jo], name: [text] } },
          { attributes: { email: [jo], groups: [text] } },
        ]) {
          const { status, location } = await enter(said)
          const error = errorIn(location)
          expect([said, status, error]).toEqual([
            said,
            302,
            expect.stringMatching(/^(saml_\w+|sso_text_invalid)$/),
          ])
        }
      }
      expect(await service.storage.read.selectFrom('sso_identities').selectAll().execute()).toEqual([])
      expect(codeIn((await enter({ attributes: { email: [jo] } })).location)).not.toBe('')
    })
  })
})
