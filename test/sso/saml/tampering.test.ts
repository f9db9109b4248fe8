import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SsoFailure } from '../../../src/sso/failures.ts'
import type { Assertion } from '../../../src/sso/saml/assertion.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { admin, expected, jo, posted, signedAssertion, signedResponse } from './identity-provider.ts'

const numRuns = 25

/** A changed response is refused, or gives exactly what was signed. */
async function expectUnmoved(xml: string | Buffer, original: Assertion): Promise<void> {
  const encoded = Buffer.from(xml).toString('base64')
  const got = await verifyResponse(encoded, expected).catch((failure: unknown) => failure)
  if (!(got instanceof SsoFailure)) expect(got).toEqual(original)
}

describe.each([
  ['a signed assertion', signedAssertion()],
  ['a signature of the response', signedResponse()],
])('a response with %s', (_, xml) => {
  const bytes = Buffer.from(xml)
  const original = () => verifyResponse(posted(xml), expected)

  it('never gives other data after any byte is changed', async () => {
    const wanted = await original()
    const change = fc.tuple(fc.nat(bytes.length - 1), fc.constantFrom(...Buffer.from(' "<>&/=!?-:aA0\0é')))
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 2 }), async (changes) => {
        const changed = Buffer.from(bytes)
        for (const [at, byte] of changes) changed[at] = byte
        await expectUnmoved(changed, wanted)
      }),
      { numRuns },
    )
  })

  /** The positions at which a tag begins or ends. */
  const cuts = [...xml.matchAll(/<|(?<=>)/g)].map(({ index }) => index)
  const cut = fc.nat(cuts.length - 1).map((at) => cuts[at]!)
  /** Complete elements with their contents. */
  const elements = [
    ...new Set([...xml.matchAll(/<((?:saml|samlp|ds):\w+)[ >]/g)].map(([, name]) => name!)),
  ].flatMap((name) => [...xml.matchAll(new RegExp(`<${name}[ >].*?</${name}>`, 'gs'))].map(([part]) => part))
  const anything = fc.constantFrom(...elements)
  const forged = anything.map((part) => part.replaceAll(jo, admin).replaceAll(/ ID="(\w+)"/g, ' ID="$1x"'))

  it('never gives other data after any part is moved, removed or inserted', async () => {
    const wanted = await original()
    const change = fc.record({ part: fc.oneof(anything, forged), from: fc.boolean(), at: cut })
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 2 }), async (changes) => {
        let changed = xml
        for (const { part, from, at } of changes) {
          if (from) changed = changed.replace(part, () => '')
          changed = changed.slice(0, at) + part + changed.slice(at)
        }
        await expectUnmoved(changed, wanted)
      }),
      { numRuns },
    )
  })

  it('never gives other data after comments and instructions are inserted', async () => {
    const wanted = await original()
    const odd = fc.constantFrom(
      '<!---->',
      '<?a b?>',
      '<![CDATA[]]>',
      '<![CDATA[a]]>',
      '&#10;',
      ' ',
      '\r\n',
      '\u2028',
    )
    const place = fc.oneof(cut, fc.nat(xml.length), fc.constant(xml.indexOf(jo) + 3))
    await fc.assert(
      fc.asyncProperty(place, odd, async (at, what) => {
        await expectUnmoved(xml.slice(0, at) + what + xml.slice(at), wanted)
      }),
      { numRuns },
    )
  })
})
