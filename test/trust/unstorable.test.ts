import { expect, it } from 'vitest'
import { onEveryDatabase } from '../databases.ts'
import { refused, start, unsigned } from './trust-stage.ts'

onEveryDatabase((_, open) => {
  it('what a database does not take, in a token, leads to no policy', async () => {
    const { create, exchange, tokenOf } = await start(open)
    await create()
    for (const odd of ['a\u0000b', 'a\ud800']) {
      // Nobody has signed it.
      await expect(exchange(unsigned({ iss: odd }))).rejects.toEqual(refused())
      const strange = await tokenOf({ [odd]: 'x', environment: odd, actor: odd, run_id: odd, sub: odd })
      await expect(exchange(strange)).rejects.toMatchObject({ status: 401, code: 'federated_token_refused' })
      // In what no policy asks for, it keeps nobody out.
      expect(await exchange(await tokenOf({ [odd]: 'x', actor: odd, run_id: odd, sub: odd }))).toMatchObject({
        policy: { name: 'Releases' },
      })
    }
  })
})
