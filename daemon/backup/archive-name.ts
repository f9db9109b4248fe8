import type { Instant } from '../../src/core/time.ts'
import { version } from '../../src/version.ts'

/**
 * The name of an archive in a directory or below a prefix: ordered by time. To the millisecond, because nothing is overwritten and
 * a scheduled backup may start in the same second as one of an operator's cron.
 */
export function archiveName(madeAt: Instant, isEncrypted: boolean): string {
  const stamp = madeAt.replace(/[-:]/g, '')
  return `svc-${stamp}-${version}.backup${isEncrypted ? '.age' : ''}`
}

const pattern = /^svc-\d{8}T\d{6}(\.\d{3})?Z-\d[\w.+-]*\.backup(\.age)?$/

export const isArchiveName = (name: string): boolean => pattern.test(name)
