import { invalid } from '../../core/errors.ts'
import { randomBytes } from '../../core/random.ts'

/** How long a sign-in, and the code that ends it, may last. */
export const signInSeconds = 10 * 60
export const exchangeSeconds = 2 * 60

/** What a sign-in is known by: 32 bytes each in base64url. */
export const newState = (): string => randomBytes(32).toString('hex')
export const newVerifier = (): string => randomBytes(64).toString('base64url')

const loopback = /^http:\/\/(127\.0\.0\.1|\[::1\]):[1-9]\d{0,4}(\/[\w./~-]*)?$/

/**
 * Where a browser may go on: a path of the application, or a program on the person's own machine (RFC 8252, 7.3),
 * which has to show that the code is meant for it.
 * @throws invalid_request
 */
export function redirectTarget(redirect: string | undefined, challenge: string | undefined): string {
  if (redirect === undefined) return '/'
  if (loopback.test(redirect) && URL.canParse(redirect)) {
    if (challenge !== undefined) return redirect
    throw invalid([{ path: 'query.challenge', message: 'is required when the browser goes on to a program' }])
  }
  return /^\/(?![/\\])[^\\\s\p{Cc}#]*$/u.test(redirect) ? redirect : '/'
}
