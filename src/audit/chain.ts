import { hash } from 'node:crypto'
import canonicalizeJson from 'canonicalize'
import { parseJson } from '../core/json.ts'

/**
 * The arithmetic of the audit chain. It is pure, so a server seals with it and an auditor verifies with it. An
 * entry's checksum is SHA-256 over its canonical text (RFC 8785, every recorded field, prevChecksum included);
 * prevChecksum is the checksum of the entry before it in the same chain.
 */

/** prevChecksum of the first entry. */
export const genesisChecksum = '0'.repeat(64)

/** Every recorded field of an entry. */
export type ChainEntry = {
  id: string
  /** null in the system chain. */
  orgId: string | null
  /** From 1, without gaps. */
  seq: number
  timestamp: string
  actorType: 'user' | 'api_key' | 'agent' | 'system'
  actorId: string
  actorEmail: string | null
  action: string
  resourceType: string
  resourceId: string | null
  resourceName: string | null
  details: Record<string, unknown>
  ipAddress: string | null
  userAgent: string | null
  result: 'success' | 'failure' | 'denied'
  errorMessage: string | null
  prevChecksum: string
}

/**
 * RFC 8785 text of an entry to seal. Its fields are written here in the order of their names; the library
 * writes the details, which may hold anything.
 */
export function canonicalText(entry: ChainEntry): string {
  const { action, actorEmail, actorId, actorType, details, errorMessage, id, ipAddress, orgId } = entry
  const { prevChecksum, resourceId, resourceName, resourceType, result, seq, timestamp, userAgent } = entry
  const before = JSON.stringify({ action, actorEmail, actorId, actorType })
  const after = JSON.stringify({
    errorMessage,
    id,
    ipAddress,
    orgId,
    prevChecksum,
    resourceId,
    resourceName,
    resourceType,
    result,
    seq,
    timestamp,
    userAgent,
  })
  return `${before.slice(0, -1)},"details":${canonicalJson(details)},${after.slice(1)}`
}

/**
 * Parses a stored text; undefined when it is not an entry, since an attacker with access to the database may
 * have changed it.
 */
export function parseEntry(text: string): ChainEntry | undefined {
  const value = parseJson(text)
  return isChainEntry(value) ? value : undefined
}

export function isChainEntry(it: unknown): it is ChainEntry {
  if (it === null || typeof it !== 'object') return false
  const value = it as Partial<Record<keyof ChainEntry, unknown>>
  const { details, seq } = value
  return (
    requiredTexts.every((field) => typeof value[field] === 'string') &&
    nullableTexts.every((field) => value[field] === null || typeof value[field] === 'string') &&
    Number.isSafeInteger(seq) &&
    details !== null &&
    typeof details === 'object' &&
    !Array.isArray(details)
  )
}

const requiredTexts = [
  'id',
  'timestamp',
  'actorType',
  'actorId',
  'action',
  'resourceType',
  'result',
  'prevChecksum',
] as const
const nullableTexts = [
  'orgId',
  'actorEmail',
  'resourceId',
  'resourceName',
  'ipAddress',
  'userAgent',
  'errorMessage',
] as const

/** RFC 8785 text of any JSON. */
export function canonicalJson(value: unknown): string {
  const text = canonicalizeJson(value)
  if (text === undefined) throw new TypeError('what is made canonical must be JSON')
  return text
}

export const checksumOf = (canonical: string | Uint8Array): string => hash('sha256', canonical, hexDigest)

/** An explicit length saves looking the algorithm up by name on each call. */
const hexDigest = { outputEncoding: 'hex', outputLength: 32 } as const

export type ChainHead = { seq: number; checksum: string }

/**
 * The stored head of a chain. An invalid head counts as the beginning, so a verifier reports the entries as
 * missing.
 */
export const toChainHead = (row: ChainHead | undefined): ChainHead =>
  row !== undefined && Number.isSafeInteger(row.seq) && row.seq >= 0
    ? row
    : { seq: 0, checksum: genesisChecksum }

/*
 * A chain as a file (NDJSON): a header line, a line for each entry, oldest first, and a trailer line that
 * states where the chain ended, so a truncated file is noticed. An entry's line contains its canonical text
 * byte for byte, so a verifier hashes it as it was read. man/svc-audit.7 has the format.
 */
export const chainFormat = 'svc-audit-chain/1'

/** Replaces the entries that retention has removed: a signed anchor, and the tree over them. */
export type HeaderAnchor = {
  note: string
  /** Roots of the perfect trees that the removed leaves are made of, largest first, in base64. */
  tree: string[]
}

export type ChainHeader = {
  orgId: string | null
  anchor?: HeaderAnchor | undefined
  /** Notes in which one key of the service names the next, oldest first. */
  keys?: string[] | undefined
  /** Notes about restores of the database from a backup, oldest first. */
  restores?: string[] | undefined
}

export const headerLine = (orgId: string | null, more: Omit<ChainHeader, 'orgId'> = {}): string =>
  `${JSON.stringify({ format: chainFormat, orgId, anchor: more.anchor, keys: filled(more.keys), restores: filled(more.restores) })}\n`

const filled = (notes: string[] | undefined): string[] | undefined => (notes?.length ? notes : undefined)

export const entryPrefix = '{"checksum":"'
export const entryInfix = '","entry":'
/** Offsets of the checksum and of the canonical text in the line of an entry. */
export const checksumOffset = entryPrefix.length
export const canonicalOffset = checksumOffset + 64 + entryInfix.length

export const entryLine = (checksum: string, canonical: string): string =>
  `${entryPrefix}${checksum}${entryInfix}${canonical}}\n`

/** `checkpoint` is a signed note about this head. */
export const trailerLine = (head: ChainHead, checkpoint?: string): string =>
  `${JSON.stringify({ head, checkpoint })}\n`
