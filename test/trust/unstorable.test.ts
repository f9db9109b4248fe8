import { expect, it } from 'vitest'
import { inTurn } from '../databases.ts'
import { refused, start, unsigned } from './trust-fixture.ts'

inTurn((open) => {
  it('a token with text that a database cannot store matches no policy that checks it', async () => {
    const { create, exchange, tokenOf } = await start(open)
    await create()
    for (const odd of ['a\u0000b', 'a\ud800']) {
      // An unsigned token.
      await expect(exchange(unsigned({ iss: odd }))).rejects.toEqual(refused())
      const strange = await tokenOf({ [odd]: 'x', environment: odd, actor: odd, run_id: odd, sub: odd })
      await expect(exchange(strange)).rejects.toMatchObject({ status: 401, code: 'federated_token_refused' })
      // In claims that no policy checks, it does not matter.
      expect(await exchange(await tokenOf({ [odd]: 'x', actor: odd, run_id: odd, sub: odd }))).toMatchObject({
        policy: { name: 'Releases' },
      })
    }
  })
})
