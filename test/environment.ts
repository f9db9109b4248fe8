import { afterAll, expect } from 'vitest'

/*
 * Files share a process. One that leaves a variable, or another object in the place of `process.env`, changes those
 * after it: vi.unstubAllEnvs deletes from the object that was there when the process began.
 */
const env = process.env
const before = { ...env }

afterAll(() => {
  expect(process.env === env, 'process.env is the object that it was').toBe(true)
  const { VITEST_POOL_ID: _, VITEST_WORKER_ID: __, ...rest } = before
  expect({ ...process.env }).toMatchObject(rest)
  expect(Object.keys(process.env).filter((name) => !(name in before))).toEqual([])
})
