import { expect, test } from 'vitest'
import { formatBytes } from '../../src/core/byte-size.ts'

test.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1024, '1.0 KiB'],
  [99.9 * 1024, '99.9 KiB'],
  [812 * 2 ** 20, '812 MiB'],
  [2.14 * 2 ** 30, '2.1 GiB'],
  [5000 * 2 ** 40, '5000 TiB'],
  [-8192, '-8.0 KiB'],
  [-1, '-1 B'],
])('%d bytes are %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text)
})
