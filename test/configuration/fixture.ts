import { api } from '../../src/api.ts'
import type { TestService } from '../harness.ts'

export type Document = Record<string, Record<string, unknown>[]>

type Options = {
  set?: string
  adopt?: boolean
  prune?: boolean
  pruneLimit?: number
  culprits?: boolean
  revision?: string
}

/** What a caller does with files, of their tenant, or of the organization or partner that they name. */
export const configurationOf =
  (service: TestService) => (token: string, named?: string | { partnerId: string }) => {
    const client = service.client(token)
    const query = typeof named === 'string' ? { orgId: named } : (named ?? {})
    const plan = (document: Document, { revision: _, ...options }: Options = {}) =>
      client.call(api.configuration.plan, { query, body: { document, ...options } })
    const apply = async (
      document: Document,
      { revision, culprits: _, ...options }: Options = {},
      version?: string,
    ) => {
      const wanted = version ?? (await plan(document, options)).version
      const body = { document, ...options, version: wanted, ...(revision !== undefined && { revision }) }
      return client.call(api.configuration.apply, { query, body })
    }
    const exported = () => client.call(api.configuration.export, { query })
    const sets = async () => (await client.call(api.configuration.sets, { query })).data
    return { client, plan, apply, exported, sets }
  }
