import type * as argon2 from '@node-rs/argon2'
import { vi } from 'vitest'

// A sign-in as slow as it has to be takes 20 ms of a core, and the tests have thousands of them.
vi.mock('@node-rs/argon2', async (original) => {
  const real = await original<typeof argon2>()
  const hash: typeof argon2.hash = (password, options) =>
    real.hash(password, { ...options, memoryCost: 64, timeCost: 1 })
  return { ...real, hash }
})
