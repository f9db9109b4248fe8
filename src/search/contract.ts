import { z } from 'zod'
import { endpoint, userAccess } from '../core/endpoint.ts'
import { pageQuery } from '../core/page.ts'
import { idOf, trimmed } from '../core/schema.ts'

export const SearchResult = z
  .object({
    id: z.string(),
    type: z.enum(['devices', 'scripts', 'alerts', 'settings']),
    title: z.string(),
    description: z.string().optional(),
    href: z.string().optional().describe('Address of a settings page'),
  })
  .meta({ id: 'SearchResult' })
export type SearchResult = z.output<typeof SearchResult>

export const search = {
  everything: endpoint({
    method: 'GET',
    path: '/search',
    summary: 'Search devices, scripts, alerts and settings',
    tag: 'Search',
    // A record type is searched only for callers who may read it.
    access: userAccess({ key: true }),
    readQuery: true,
    query: z.strictObject({
      orgId: idOf('organization')
        .optional()
        .describe('Only devices and alerts of this organization, and scripts that it can use'),
      q: trimmed(100, 1).describe('Part of a name, title or description, ignoring letter case'),
      limit: pageQuery({ default: 20, max: 50 }).limit.describe('Results in total, at most 50'),
    }),
    reply: z.object({ results: z.array(SearchResult) }),
    errors: ['org_access_denied'],
  }),
}
