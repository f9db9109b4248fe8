import { bundle, sealed } from '../audit/bundles.ts'
import { uuid } from './fake-service.ts'

/** The lines of a chain as the service streams it, without a signature. */
export function chainLines(orgId: string | null, length: number): string[] {
  const entries = sealed(
    length,
    (seq) => ({
      id: uuid(499 + seq),
      timestamp: '2026-01-31T12:00:00.000Z',
      actorId: uuid(1),
      actorEmail: 'admin@example.com',
      action: `site.change.${seq}`,
      resourceName: 'Main Office',
      details: {},
      ipAddress: null,
    }),
    orgId,
  )
  return bundle(entries, { org: orgId, by: null })
}
