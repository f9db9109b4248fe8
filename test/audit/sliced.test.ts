import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { Sliced } from '../../src/audit/checkpoints/sliced.ts'
import { until } from '../daemon/process.ts'

/** Work of two pauses that has to keep something, which fails while it is `lost`. */
function begin() {
  const state = { asked: 0, isLost: false }
  const keep = async () => {
    state.asked += 1
    if (state.isLost) throw new Error('It could not be kept')
  }
  const work = new Sliced(async (pause) => {
    await pause(keep)
    await pause(keep)
  }, 5)
  return { state, work }
}

it('work that pauses goes on after what it keeps could not be renewed for a while', async () => {
  const { state, work } = begin()
  state.isLost = true
  expect(await work.run(0)).toBe(false)
  await until(async () => state.asked > 2)
  state.isLost = false
  expect(await work.run(0)).toBe(false)
  expect(await work.run(0)).toBe(true)
})

it('work that pauses fails when what it keeps is lost at the time that it goes on', async () => {
  const { state, work } = begin()
  expect(await work.run(0)).toBe(false)
  state.isLost = true
  await sleep(20)
  await expect(work.run(0)).rejects.toThrow('It could not be kept')
})
