import { z } from 'zod'
import { endpoint, publicAccess } from '../core/endpoint.ts'

const Health = z
  .object({
    status: z.literal('ok'),
    version: z.string(),
    uptime: z.number().describe('Seconds since start'),
    clientAddress: z
      .string()
      .describe('The address of the caller, as the service sees it: through proxies, if it trusts them'),
    maintenance: z
      .string()
      .optional()
      .describe('Why the service answers no writes, in a sentence; absent when it does'),
  })
  .meta({ id: 'Health' })

export const service = {
  health: endpoint({
    method: 'GET',
    path: '/health',
    summary: 'Show that the service answers, and its version',
    tag: 'Service',
    access: publicAccess,
    reply: Health,
  }),
}
