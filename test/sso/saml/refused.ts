import { expect } from 'vitest'
import type { FailureCode } from '../../../src/sso/failures.ts'
import type { ExpectedResponse } from '../../../src/sso/saml/expected.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { expected, posted } from './identity-provider.ts'

/** A response, the reason why it is refused, and what deviates from the usual expectations. */
export type Refused = [
  what: string,
  xml: () => string,
  code: FailureCode,
  detail: string | RegExp | undefined,
  change?: Partial<ExpectedResponse>,
]

export async function expectRefused([, xml, code, detail, change]: Refused): Promise<void> {
  const failure = verifyResponse(posted(xml()), { ...expected, ...change })
  await expect(failure).rejects.toMatchObject({
    name: 'SsoFailure',
    code,
    detail:
      typeof detail === 'string' ? expect.stringContaining(detail) : detail && expect.stringMatching(detail),
  })
}
