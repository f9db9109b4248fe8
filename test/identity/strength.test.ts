import { describe, expect, it } from 'vitest'
import { StrengthEstimator } from '../../src/identity/passwords/strength.ts'
import { withFairShareKey } from '../../src/storage/fair-queue.ts'

const weak = { password: 'password', about: [] }
const strong = { password: 'nine quiet herons over the weir', about: [] }

describe('the strength of passwords', () => {
  it('is estimated in one thread, which ends when nothing was estimated for a while', async () => {
    const estimator = new StrengthEstimator(50)
    const scores = await Promise.all([weak, strong].map((question) => estimator.estimate(question)))
    expect(scores).toMatchObject([
      { score: 0, advice: expect.arrayContaining([expect.any(String)]) },
      { score: 4 },
    ])
    expect(estimator.isLoaded).toBe(true)
    await expect.poll(() => estimator.isLoaded, { timeout: 10_000 }).toBe(false)
    expect(await estimator.estimate(strong)).toMatchObject({ score: 4 })
  })

  it('a flood of estimates for one network delays that for another by one', async () => {
    const estimator = new StrengthEstimator(50)
    const order: string[] = []
    const estimate = (network: string) =>
      withFairShareKey(['nobody', network], () => estimator.estimate(strong)).then(() => order.push(network))
    const flood = Array.from({ length: 20 }, () => estimate('hostile'))
    await Promise.all([estimate('honest'), ...flood])
    expect(order.indexOf('honest')).toBeLessThan(3)
  })

  it('a thread that fails refuses what it was estimating, and is replaced', async () => {
    const estimator = new StrengthEstimator(50)
    const broken = { password: 7 as never, about: [] }
    const [first, second] = await Promise.allSettled([estimator.estimate(broken), estimator.estimate(strong)])
    expect(first.status).toBe('rejected')
    expect(second).toMatchObject({ status: 'fulfilled', value: { score: 4 } })
  })
})
