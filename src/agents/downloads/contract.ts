import { z } from 'zod'
import { endpoint, publicAccess } from '../../core/endpoint.ts'
import { text } from '../../core/schema.ts'
import { version } from '../versions/contract.ts'

const word = text(50, 1)
const machine = {
  os: word.describe('linux, darwin or windows'),
  arch: word.describe('amd64, arm64 or 386'),
}
const query = z.strictObject({
  version: version.optional().describe('By default the version that is offered to such machines'),
})
const shared = {
  method: 'GET',
  tag: 'Agent versions',
  access: publicAccess,
  query,
  reply: z.string().describe('The file'),
  bytes: true,
  errors: ['range_not_satisfiable'],
} as const

export const agentDownloads = {
  agent: endpoint({
    ...shared,
    path: '/agents/download/:os/:arch',
    summary: 'Download the agent for a kind of machine',
    params: z.strictObject(machine),
  }),
  component: endpoint({
    ...shared,
    path: '/agents/download/:component/:os/:arch',
    summary: 'Download a program of the agent for a kind of machine',
    params: z.strictObject({ component: word.describe('agent or helper'), ...machine }),
  }),
}
