import { beforeEach, describe, expect, it } from 'vitest'
import { api } from '../../src/api.ts'
import type { Problem } from '../../src/core/errors.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'
import { setPassword } from '../../src/identity/passwords/store.ts'
import { endSessions, findUserByEmail } from '../../src/identity/store.ts'
import type { Db } from '../../src/storage/open.ts'
import { inTurn } from '../databases.ts'
import {
  adminEmail as email,
  adminPassword as password,
  startService,
  type TestService,
  testClock,
} from '../harness.ts'

type Tokens = { accessToken: string; refreshToken?: string }

inTurn((open) => {
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

  /** Makes a call while an uncommitted change is in progress, and returns the outcome of the call. */
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
    // Long enough for the call to reach its decision and wait for its transaction.
    await new Promise((resolve) => setTimeout(resolve, 1500))
    end.resolve()
    await changing
    return outcome
  }

  const signOutEverywhere = (tx: Db) => endSessions(tx, id, clock())
  const changePassword = async (tx: Db) =>
    setPassword(tx, id, await hashPassword('another nine herons over the weir'), clock())

  describe('a change that ends all sessions', () => {
    it('ends a concurrent sign-in with the old password', async () => {
      expect(await during(changePassword, login)).toEqual({ status: 401 })
    })

    it('ends a session that switches memberships at the same time', async () => {
      const { accessToken } = (await login()).tokens as Tokens
      const switchMembership = () => as(accessToken).call(api.auth.switch, { body: {} })
      expect(await during(signOutEverywhere, switchMembership)).toEqual({ status: 401 })
    })

    it('ends a sign-in that waits for its second factor, or is about to', async () => {
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

  it('signing out ends one session, or all of the account', async () => {
    const [first, second, third] = [await login(), await login(), await login()].map(
      ({ tokens }) => tokens as Tokens,
    )
    const stands = async ({ accessToken }: Tokens) =>
      as(accessToken)
        .call(api.auth.me)
        .then(
          () => true,
          ({ status }: Problem) => status !== 401,
        )
    const standing = () => Promise.all([first!, second!, third!].map(stands))
    await as(first!.accessToken).call(api.auth.logout, { body: { everywhere: false } })
    expect(await standing()).toEqual([false, true, true])
    await expect(refresh(first!.refreshToken)).rejects.toMatchObject({ status: 401 })
    expect(await refresh(second!.refreshToken)).toMatchObject({ tokens: expect.anything() })
    await as(third!.accessToken).call(api.auth.logout, { body: {} })
    expect(await standing()).toEqual([false, false, false])
    await expect(refresh(third!.refreshToken)).rejects.toMatchObject({ status: 401 })
  })

  it('switching memberships does not extend a session beyond the lifetime of its sign-in', async () => {
    let { accessToken, refreshToken } = (await login()).tokens as Tokens
    for (let day = 0; day < 30; day += 6) {
      const again = (await refresh(refreshToken)).tokens as Tokens
      const switched = await as(again.accessToken).call(api.auth.switch, { body: {} })
      ;({ accessToken, refreshToken } = switched.tokens as Tokens)
      clock.forward(6 * 24 * 3600)
    }
    await expect(refresh(refreshToken)).rejects.toMatchObject({ status: 401 })
    await expect(as(accessToken).call(api.auth.me)).rejects.toMatchObject({ status: 401 })
  })
})
