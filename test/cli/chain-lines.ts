import {
  type ChainEntry,
  canonicalText,
  checksumOf,
  entryLine,
  genesisChecksum,
  headerLine,
  trailerLine,
} from '../../src/audit/chain.ts'
import { uuid } from './fake-service.ts'

/** The lines of a chain as the service streams it. */
export function chainLines(orgId: string | null, length: number): string[] {
  let prevChecksum = genesisChecksum
  const entries = Array.from({ length }, (_, i) => {
    const entry: ChainEntry = {
      id: uuid(500 + i),
      orgId,
      seq: i + 1,
      timestamp: '2026-01-31T12:00:00.000Z',
      actorType: 'user',
      actorId: uuid(1),
      actorEmail: 'admin@example.com',
      action: `site.change.${i + 1}`,
      resourceType: 'site',
      resourceId: null,
      resourceName: 'Main Office',
      details: {},
      ipAddress: null,
      userAgent: null,
      result: 'success',
      errorMessage: null,
      prevChecksum,
    }
    const text = canonicalText(entry)
    prevChecksum = checksumOf(text)
    return entryLine(prevChecksum, text)
  })
  return [headerLine(orgId), ...entries, trailerLine({ seq: length, checksum: prevChecksum })]
}
