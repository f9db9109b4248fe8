import { isJsonObject, parseJson } from '../../core/json.ts'
import {
  type ChainHead,
  type ChainHeader,
  canonicalOffset,
  chainFormat,
  checksumOf,
  checksumOffset,
  entryInfix,
  entryPrefix,
  type HeaderAnchor,
} from '../chain.ts'

/** The lines of a chain file, parsed one by one: header, entries, trailer, and lines that do not fit. */

export type Fields = Record<string, unknown>

export type ChainLine =
  | { is: 'entry'; entry: Fields; seq: number; checksum: string; link: string; orgId: string | null }
  /** Has the form of an entry, but its text does not match its checksum. */
  | { is: 'altered'; entry: Fields | undefined }
  | { is: 'trailer'; head: ChainHead; checkpoint: string | undefined }
  | { is: 'unreadable' }

export function readLine(line: Buffer): ChainLine {
  const text = line.toString('latin1')
  if (!text.startsWith(entryPrefix)) return readTrailer(line) ?? { is: 'unreadable' }
  const canonical = line.subarray(canonicalOffset, -1)
  const entry = fieldsOf(canonical)
  const checksum = text.slice(checksumOffset, checksumOffset + 64)
  const framed = text.startsWith(entryInfix, checksumOffset + 64) && text.endsWith('}')
  if (!framed || checksumOf(canonical) !== checksum) return { is: 'altered', entry }
  const { seq, prevChecksum, orgId } = entry ?? {}
  const isValid =
    isCount(seq) && typeof prevChecksum === 'string' && (orgId === null || typeof orgId === 'string')
  return isValid
    ? { is: 'entry', entry: entry!, seq, checksum, link: prevChecksum, orgId }
    : { is: 'unreadable' }
}

/** undefined for a line that is not a header of this format. */
export function readHeader(line: Buffer): ChainHeader | undefined {
  const header = compact(line, ['format', 'orgId', 'anchor', 'keys', 'restores'])
  if (header?.format !== chainFormat) return undefined
  const { orgId, anchor, keys, restores } = header
  if (orgId !== null && typeof orgId !== 'string') return undefined
  if (anchor !== undefined && !isAnchor(anchor)) return undefined
  if (keys !== undefined && !areTexts(keys)) return undefined
  if (restores !== undefined && !areTexts(restores)) return undefined
  return { orgId, anchor, keys, restores }
}

export function readTrailer(line: Buffer): (ChainLine & { is: 'trailer' }) | undefined {
  const { head, checkpoint } = compact(line, ['head', 'checkpoint']) ?? {}
  const { seq, checksum, ...rest } = (head ?? {}) as Fields
  if (!isCount(seq) || typeof checksum !== 'string' || Object.keys(rest).length > 0) return undefined
  if (checkpoint !== undefined && typeof checkpoint !== 'string') return undefined
  return { is: 'trailer', head: { seq, checksum }, checkpoint }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

const areTexts = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const isAnchor = (value: unknown): value is HeaderAnchor => {
  const { note, tree, ...rest } = (value ?? {}) as Fields
  return typeof note === 'string' && areTexts(tree) && Object.keys(rest).length === 0
}

/**
 * Parses an object that has these fields only and no white space, so that no byte can change without changing
 * its meaning.
 */
function compact(line: Buffer, known: readonly string[]): Fields | undefined {
  const fields = fieldsOf(line)
  const isKnown = fields && Object.keys(fields).every((name) => known.includes(name))
  return isKnown && Buffer.from(JSON.stringify(fields)).equals(line) ? fields : undefined
}

function fieldsOf(bytes: Buffer): Fields | undefined {
  const value = parseJson(bytes)
  return isJsonObject(value) ? (value as Fields) : undefined
}
