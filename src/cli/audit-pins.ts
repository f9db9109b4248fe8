import { isDeepStrictEqual } from 'node:util'
import type { Pin } from '../audit/verifier/pins.ts'
import { isJsonObject, parseJson } from '../core/json.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { readFileIfExists, writePrivateFile } from './files.ts'
import { withLock } from './lock.ts'

/** The last verified state of each chain, in a file of whoever verifies. */
export type Pins = { [chain: string]: Pin }

const version = 1
const nameOf = (orgId: string | null): string => orgId ?? 'system'

export const findPin = (pins: Pins, orgId: string | null): Pin | undefined =>
  Object.hasOwn(pins, nameOf(orgId)) ? pins[nameOf(orgId)] : undefined

/** A missing file has no pins. */
export function readPins(path: string): Pins {
  const text = readFileIfExists(path)
  if (text === undefined) return {}
  const file = parseJson(text) as { version?: unknown; chains?: unknown } | null | undefined
  if (file?.version === version && isPins(file.chains)) return file.chains
  throw new CliError(`${path} is not a file of pins`, {
    exit: exitCodes.unverifiable,
    hint: 'its pins cannot be compared; move it away, or name another file to start anew',
  })
}

/** `lost`: the pin before, when a restore explains that the chain no longer has it. */
export type SeenPin = { orgId: string | null; pin: Pin; lost?: Pin | undefined }

/** Pins only advance, since another process may have verified more in the meantime, unless it is the lost one that is replaced. */
export async function savePins(path: string, seen: readonly SeenPin[]): Promise<void> {
  if (seen.length === 0) return
  await withLock('audit-pins', () => {
    const chains = { ...readPins(path) }
    for (const { orgId, pin, lost } of seen) {
      const known = findPin(chains, orgId)
      const isNext = known === undefined || known.seq <= pin.seq || isDeepStrictEqual(known, lost)
      if (isNext) chains[nameOf(orgId)] = pin
    }
    writePrivateFile(path, `${JSON.stringify({ version, chains }, null, 2)}\n`)
  })
}

const isPins = (value: unknown): value is Pins =>
  isJsonObject(value) && Object.values(value as Pins).every(isPin)

function isPin(value: Pin | null): boolean {
  if (value === null || typeof value !== 'object') return false
  const { seq, checksum, root, time, signed, key } = value
  const isHash = (text: string | null) => text === null || Buffer.from(text, 'base64').length === 32
  return (
    Number.isSafeInteger(seq) &&
    /^[0-9a-f]{64}$/.test(checksum) &&
    isHash(root) &&
    isHash(key) &&
    typeof time === 'string' &&
    (signed === undefined || typeof signed === 'string')
  )
}
