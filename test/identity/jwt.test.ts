import { SignJWT, UnsecuredJWT } from 'jose'
import { expect, test } from 'vitest'
import { createJwtSigner } from '../../src/identity/sessions/jwt.ts'

const kind = { audience: 'people', type: 'access', seconds: 60 }
const now = new Date('2026-03-01T12:00:00.000Z')
const [old, current] = ['a'.repeat(32), 'b'.repeat(32)]
const signer = createJwtSigner([current, old], kind)

test('a token of either key is accepted, and one of a third or past its end is not', async () => {
  for (const secret of [current, old])
    expect(
      await signer.verify(await createJwtSigner([secret], kind).sign('ann', {}, now), now),
    ).toMatchObject({ subject: 'ann' })
  const strange = await createJwtSigner(['c'.repeat(32)], kind).sign('ann', {}, now)
  expect(await signer.verify(strange, now)).toBeUndefined()
  const ended = await signer.sign('ann', {}, now)
  expect(await signer.verify(ended, new Date(now.getTime() + 60_000))).toBeUndefined()
})

test('whatever a caller sends as a token is refused, and is no error', async () => {
  const signed = await signer.sign('ann', {}, now)
  const [header, payload, signature] = signed.split('.') as [string, string, string]
  const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const withHeader = (value: unknown) => `${encoded(value)}.${payload}.${signature}`
  const key = new TextEncoder().encode(current)
  const signedAs = (claims: object, alg = 'HS256') =>
    new SignJWT(claims as never).setProtectedHeader({ alg }).sign(key)
  const headers = [null, 1, [], 'x', {}, { alg: 'none' }, { alg: 1 }, { alg: 'ES256' }]
  const tokens = [
    '',
    '.',
    '..',
    'a.b.c',
    '....',
    '\u0000.\u0000.\u0000',
    'é.é.é',
    `${signed}.`,
    `${signed}.${signed}`,
    `${header}.${payload}.`,
    `${header}..${signature}`,
    `.${payload}.${signature}`,
    ...headers.map(withHeader),
    withHeader({ alg: 'HS256', b64: false }),
    withHeader({ alg: 'HS256', crit: ['b64'], b64: false }),
    withHeader({ alg: 'HS256', crit: 'b64' }),
    withHeader({ alg: 'HS256', crit: ['what'], what: 1 }),
    new UnsecuredJWT({ sub: 'ann' }).encode(),
    await signedAs({}),
    await signedAs({ iss: 1, aud: 2, exp: 3 }),
    await signedAs({ iss: 'service', aud: 'people', exp: 'soon' }),
    await signedAs({}, 'HS512').catch(() => ''),
  ]
  for (const token of tokens) expect(await signer.verify(token, now), token).toBeUndefined()
})

test('an error that is not about the token is not taken for a token of another key', async () => {
  await expect(signer.verify(await signer.sign('ann', {}, now), 5 as never)).rejects.toThrow(TypeError)
})
