import { onTestFinished, vi } from 'vitest'
import { ByteQuota } from '../../src/logs/quota.ts'

/**
 * Keeps services that the test starts from making room in the background, a quarter of a second after a quota is
 * full: what the test looks at would be gone on a slow machine.
 */
export function makeNoRoom(): void {
  const onFull = vi.spyOn(ByteQuota.prototype, 'onFull').mockImplementation(() => {})
  onTestFinished(() => onFull.mockRestore())
}
