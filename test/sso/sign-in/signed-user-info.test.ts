import { UnsecuredJWT } from 'jose'
import { describe, expect, it } from 'vitest'
import { inTurn } from '../../databases.ts'
import { newEntries } from '../../laws/audited.ts'
import { issuer } from '../provider-fixture.ts'
import { addMember, codeIn, errorIn, person, start } from './sign-in-fixture.ts'

type Claims = Record<string, unknown>

inTurn((open) => {
  describe('signed user info', () => {
    const setUp = async () => {
      const on = await start(open)
      await on.provider()
      await addMember(on.service, on.bakery.id, person.email)
      // The ID token has only the subject, so the address has to come from the user info.
      on.idp.idClaims = { email: undefined, name: undefined }
      const right = { iss: issuer, aud: 'svc' }
      return { ...on, right }
    }

    it('is accepted from the issuer, for this client', async () => {
      const { idp, right, signIn } = await setUp()
      idp.userInfoToken = (claims) => idp.signed({ ...claims, ...right })
      expect(codeIn((await signIn()).location)).not.toBe('')
      idp.userInfoToken = (claims) => idp.signed({ ...claims, ...right, aud: ['other', 'svc'] })
      expect(codeIn((await signIn()).location)).not.toBe('')
    })

    it.each<
      [string, (idp: Awaited<ReturnType<typeof setUp>>['idp'], claims: Claims) => Promise<string>, string]
    >([
      ['signed by another key', (idp, claims) => idp.signed(claims, 'another'), 'sso_userinfo_failed'],
      [
        'signed by an unpublished key',
        (idp, claims) => idp.signed(claims, 'its', 'other'),
        'sso_userinfo_failed',
      ],
      ['not signed', async (_, claims) => new UnsecuredJWT(claims).encode(), 'sso_userinfo_failed'],
      [
        'of another issuer',
        (idp, claims) => idp.signed({ ...claims, iss: 'https://a.example' }),
        'sso_userinfo_failed',
      ],
      [
        'without an issuer',
        (idp, claims) => idp.signed({ ...claims, iss: undefined }),
        'sso_userinfo_failed',
      ],
      [
        'for another client',
        (idp, claims) => idp.signed({ ...claims, aud: ['other'] }),
        'sso_userinfo_failed',
      ],
      [
        'without an audience',
        (idp, claims) => idp.signed({ ...claims, aud: undefined }),
        'sso_userinfo_failed',
      ],
      [
        'about another person',
        (idp, claims) => idp.signed({ ...claims, sub: 'subject-9' }),
        'sso_subject_mismatch',
      ],
      ['no token', async () => 'e30', 'sso_userinfo_failed'],
    ])('is refused: %s', async (_, make, code) => {
      const { idp, right, signIn, service } = await setUp()
      idp.userInfoToken = (claims) => make(idp, { ...claims, ...right })
      const news = await newEntries(service)
      expect(errorIn((await signIn()).location)).toBe(code)
      expect(await news()).toMatchObject([{ action: 'user.login.failed', details: { reason: code } }])
    })
  })
})
