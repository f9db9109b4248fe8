import { invalid } from '../../core/errors.ts'

export const passwordLength = { min: 8, max: 128 }

/**
 * Refuses a password that is too short or too long; `about` are words an attacker would try first.
 * @throws invalid_request, saying what to change
 */
export async function checkStrength(password: string, path: string, about: readonly string[]): Promise<void> {
  const { length } = [...password]
  const { min, max } = passwordLength
  if (length < min) throw tooWeak(path, `Password must be at least ${min} characters`)
  if (length > max) throw tooWeak(path, `Password must be at most ${max} characters`)
  const known = about.some((word) => word.toLowerCase() === password.toLowerCase())
  if (known) throw tooWeak(path, 'Password is too easy to guess.')
}

const tooWeak = (path: string, message: string) => invalid([{ path, message }], message)
