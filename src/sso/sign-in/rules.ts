import { invalid } from '../../core/errors.ts'
import { randomBytes } from '../../core/random.ts'

/** Lifetime of a pending sign-in, and of the code that completes it. */
export const signInSeconds = 10 * 60
export const exchangeSeconds = 2 * 60

/** Random secrets of a sign-in: the state that identifies it, and the PKCE verifier. */
export const newState = (): string => randomBytes(32).toString('hex')
export const newVerifier = (): string => randomBytes(64).toString('base64url')

const loopback = /^http:\/\/(127\.0\.0\.1|\[::1\]):[1-9]\d{0,4}(\/[\w./~-]*)?$/

/**
 * Where a browser may be redirected: a path of the application, or a program on the person's own machine (RFC
 * 8252, 7.3), which has to prove with a challenge that the code is meant for it.
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
