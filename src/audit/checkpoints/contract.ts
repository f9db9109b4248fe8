import { z } from 'zod'
import { endpoint } from '../../core/endpoint.ts'
import { idOf, instant, queryNumber } from '../../core/schema.ts'
import { accessAudit, auditReadAccess, chainOrgId, tag } from '../contract.ts'

const note = z.string().describe('A signed note (C2SP signed-note) with the text of a checkpoint')
const hash = z.string().describe('32 bytes in base64')
const key = z.object({
  publicKey: z.string().describe('Ed25519, in base64'),
  verifier: z.string().describe('The key as a C2SP verifier line, under the name of the chain'),
})

export const AuditCheckpoint = z
  .object({
    checkpoint: note,
    orgId: idOf('organization').nullable().describe('null for the system chain'),
    seq: z.int().describe('How many entries it is about'),
    checksum: z.string().describe('Of the newest of them'),
    root: hash.describe('Of the RFC 6962 tree over them, in base64'),
    time: instant,
    keyId: z.string(),
  })
  .meta({ id: 'AuditCheckpoint' })
export type AuditCheckpoint = z.output<typeof AuditCheckpoint>

export const AuditProof = z
  .object({
    checkpoint: note,
    path: z.array(hash).describe('The proof of RFC 6962, lowest first'),
    index: z.int().optional().describe('Of an entry: its leaf, seq less one'),
    size: z.int().optional().describe('Of an entry: how many leaves the tree has'),
    leaf: hash.optional().describe('Of an entry: the hash of its leaf'),
    entry: z.string().optional().describe('Of an entry: its canonical text'),
    from: z.int().optional().describe('Of a growth: the older size'),
    to: z.int().optional().describe('Of a growth: the size of the tree'),
  })
  .meta({ id: 'AuditProof' })
export type AuditProof = z.output<typeof AuditProof>

export const AuditKeys = z
  .object({
    current: key,
    former: z.array(key).describe('Those that a succession leads to from the current one, newest first'),
    successions: z.array(z.string()).describe('Notes that both keys have signed, oldest first'),
  })
  .meta({ id: 'AuditKeys' })
export type AuditKeys = z.output<typeof AuditKeys>

export const auditCheckpoints = {
  checkpoint: endpoint({
    method: 'GET',
    path: '/audit-logs/checkpoint',
    summary: 'Show a signed checkpoint of an audit chain as it stands',
    tag,
    access: auditReadAccess,
    query: z.strictObject({ orgId: chainOrgId }),
    reply: AuditCheckpoint,
    errors: ['org_access_denied', 'audit_history_changed'],
  }),
  proof: endpoint({
    method: 'GET',
    path: '/audit-logs/proof',
    summary: 'Prove that an entry is in a checkpoint, or that a chain only grew since an older one',
    tag,
    access: auditReadAccess,
    audit: accessAudit,
    query: z.strictObject({
      id: idOf('audit_log').optional().describe('The entry to prove'),
      since: queryNumber(z.int().min(1).max(Number.MAX_SAFE_INTEGER))
        .optional()
        .meta({ flag: 'older-size', formerFlag: 'since' })
        .describe('Instead: how many entries the older checkpoint was about'),
      orgId: chainOrgId,
    }),
    reply: AuditProof,
    errors: ['org_access_denied', 'audit_history_changed'],
  }),
  key: endpoint({
    method: 'GET',
    path: '/audit-logs/key',
    summary: 'Show the keys that sign an audit chain',
    tag,
    access: auditReadAccess,
    query: z.strictObject({ orgId: chainOrgId }),
    reply: AuditKeys,
    errors: ['org_access_denied'],
  }),
}
