import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Problem } from '../../src/core/errors.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { setPassword } from '../../src/identity/passwords/store.ts'
import { endSessions, findUserByEmail } from '../../src/identity/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { onEveryDatabase } from '../databases.ts'
import {
  adminEmail as email,
  adminPassword as password,
  startService,
  type TestService,
  testClock,
} from '../harness.ts'

type Tokens = { accessToken: string; refreshToken?: string }

onEveryDatabase((_, open) => {
  let service: TestService
  const clock = testClock(new Date().toISOString())
  let id: string

  beforeEach(async () => {
    service = await startService(open, { clock })
    id = (await findUserByEmail(service.storage.read, email))!.id
  })

  const as = (token?: string) => service.client(token)
  const login = () => as().call(api.auth.login, { body: { email, password } })
  const refresh = (refreshToken: string | undefined) =>
    as().call(api.auth.refresh, { body: { refreshToken: refreshToken! } })

  /** Makes a call while a change is under way that it does not see yet, and gives what came of it. */
  async function during<T>(change: (tx: Db) => Promise<void>, call: () => Promise<T>) {
    const begun = Promise.withResolvers<void>()
    const end = Promise.withResolvers<void>()
    const changing = service.storage.write(async (tx) => {
      await change(tx)
      begun.resolve()
      await end.promise
    })
    await begun.promise
    const outcome = call().then(
      (value) => ({ value }),
      (problem: Problem) => ({ status: problem.status }),
    )
    // Long enough for the call to be decided, and to wait for its transaction.
    await new Promise((resolve) => setTimeout(resolve, 1500))
    end.resolve()
    await changing
    return outcome
  }

  const signOutEverywhere = (tx: Db) => endSessions(tx, id, clock())
  const changePassword = async (tx: Db) =>
    setPassword(tx, id, await hashPassword('another nine herons over the weir'), clock())

  describe('what ends every session', () => {
    it('ends a sign-in with the password of before that is under way', async () => {
      expect(await during(changePassword, login)).toEqual({ status: 401 })
    })

    it('ends a session that goes on in another membership at this moment', async () => {
      const { accessToken } = (await login()).tokens as Tokens
      const onward = () => as(accessToken).call(api.auth.switch, { body: {} })
      expect(await during(signOutEverywhere, onward)).toEqual({ status: 401 })
    })

    it('ends a sign-in that waits for its second step, or is about to', async () => {
      const enrol = (tx: Db) =>
        tx.updateTable('users').set({ mfa_method: 'totp' }).where('id', '=', id).execute()
      await service.storage.write(enrol)
      const waiting = () =>
        service.storage.read.selectFrom('login_challenges').select('id').where('user_id', '=', id).execute()
      expect((await login()).mfaRequired).toBe(true)
      expect(await waiting()).toHaveLength(1)
      expect(await during(changePassword, login)).toEqual({ status: 401 })
      expect(await waiting()).toEqual([])
    })
  })

  it('nobody stays longer than a sign-in lasts by going on in another membership', async () => {
    let { accessToken, refreshToken } = (await login()).tokens as Tokens
    for (let day = 0; day < 30; day += 6) {
      const again = (await refresh(refreshToken)).tokens as Tokens
      const onward = await as(again.accessToken).call(api.auth.switch, { body: {} })
      ;({ accessToken, refreshToken } = onward.tokens as Tokens)
      clock.forward(6 * 24 * 3600)
    }
    await expect(refresh(refreshToken)).rejects.toMatchObject({ status: 401 })
    await expect(as(accessToken).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
  })
})
