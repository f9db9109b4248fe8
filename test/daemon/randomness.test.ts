import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { looksRandom } from '../../daemon/randomness.ts'

describe('looksRandom', () => {
  it.each(['hex', 'base64', 'base64url'] as const)('accepts 32 random bytes in %s', (encoding) => {
    const refused: string[] = []
    for (let n = 0; n < 2000; n += 1) {
      const text = randomBytes(32).toString(encoding)
      if (!looksRandom(text)) refused.push(text)
      if (looksRandom(text.slice(0, 31))) refused.push(`${text}, cut`)
    }
    expect(refused).toEqual([])
  })

  it('requires 64 digits in hex, in either case', () => {
    const text = randomBytes(32).toString('hex')
    expect([looksRandom(text), looksRandom(text.toUpperCase()), looksRandom(text.slice(1))]).toEqual([
      true,
      true,
      false,
    ])
  })

  it.each([
    '',
    'a',
    'a'.repeat(64),
    '0'.repeat(64),
    'changeme'.repeat(8),
    'deadbeef'.repeat(8),
    '0123456789abcdef'.repeat(4),
    'abcdefghijklmnopqrstuvwxyz0123456789',
    'qwertyuiopasdfghjklzxcvbnm123456',
    'a secret for tests, of more than 32 characters',
    'correct horse battery staple correct',
    'CorrectHorseBatteryStaple1234567890',
    'mysupersecretjwtkeymysupersecretjwtkey',
    'please-change-this-secret-in-production',
    'this_is_a_very_long_secret_key_for_jwt_2024!',
    'YourSuperSecretKeyForJWTAuthentication',
    'P@ssw0rd!P@ssw0rd!P@ssw0rd!P@ssw0rd!',
    Buffer.alloc(32).toString('base64'),
    Buffer.alloc(32, 'ab').toString('hex'),
  ])('rejects %j', (text) => expect(looksRandom(text)).toBe(false))
})
