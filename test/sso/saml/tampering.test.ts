import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SsoFailure } from '../../../src/sso/failures.ts'
import type { Assertion } from '../../../src/sso/saml/assertion.ts'
import { verifyResponse } from '../../../src/sso/saml/response.ts'
import { admin, expected, jo, posted, signedAssertion, signedResponse } from './identity-provider.ts'

const numRuns = 25

/** However it was changed: it is refused, or says what was signed. */
async function expectUnmoved(xml: string | Buffer, original: Assertion): Promise<void> {
  const encoded = Buffer.from(xml).toString('base64')
  const got = await verifyResponse(encoded, expected).catch((failure: unknown) => failure)
  if (!(got instanceof SsoFailure)) expect(got).toEqual(original)
}

describe.each([
  ['its assertion signed', signedAssertion()],
  ['itself signed', signedResponse()],
])('a response with %s', (_, xml) => {
  const bytes = Buffer.from(xml)
  const original = () => verifyResponse(posted(xml), expected)

  it('says nothing else with any byte changed', async () => {
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

  /** Where a tag begins, and where the document could be cut. */
  const cuts = [...xml.matchAll(/<|(?<=>)/g)].map(({ index }) => index)
  const cut = fc.nat(cuts.length - 1).map((at) => cuts[at]!)
  /** Parts that stand for themselves: elements, with all that is in them. */
  const elements = [
    ...new Set([...xml.matchAll(/<((?:saml|samlp|ds):\w+)[ >]/g)].map(([, name]) => name!)),
  ].flatMap((name) => [...xml.matchAll(new RegExp(`<${name}[ >].*?</${name}>`, 'gs'))].map(([part]) => part))
  const anything = fc.constantFrom(...elements)
  const forged = anything.map((part) => part.replaceAll(jo, admin).replaceAll(/ ID="(\w+)"/g, ' ID="$1x"'))

  it('says nothing else with any part of it moved, taken out or put in again', async () => {
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

  it('says nothing else with comments and instructions strewn into it', async () => {
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
