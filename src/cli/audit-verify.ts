import { closeSync, createReadStream, fstatSync, openSync, readFileSync, readSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { pipeline, Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type { auditLogs } from '../audit/contract.ts'
import type { toPin } from '../audit/verifier/pins.ts'
import type { verifyRanges } from '../audit/verifier/ranges.ts'
import type { readKeys } from '../audit/verifier/signatures.ts'
import type { Verdict } from '../audit/verifier/verdict.ts'
import type { ChainVerifier, VerifierOptions } from '../audit/verifier/verifier.ts'
import { resolveAuditOrg } from './audit-org.ts'
import { findPin, type Pins, readPins, type SeenPin, savePins } from './audit-pins.ts'
import { type NamedVerdict, printVerdicts } from './audit-verdicts.ts'
import type { CommandContext } from './base.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { checkReplaceable } from './files.ts'
import { type ProgressBar, progressBar } from './progress.ts'
import { escapeToOneLine } from './table.ts'

/** Verification functions that the command passes in; they need no service and no trust in one. */
export type VerifierFunctions = {
  begin(trust: VerifierOptions): ChainVerifier
  verifyRanges: typeof verifyRanges
  readKeys: typeof readKeys
  pinOf: typeof toPin
}

export type VerifyFlags = {
  key?: string | undefined
  pin?: string | undefined
  tree?: boolean | undefined
  threads?: number | undefined
}

/** A file or standard input, else the chains of the service. */
export async function verify(
  run: CommandContext,
  contract: typeof auditLogs,
  arithmetic: VerifierFunctions,
  file: string | undefined,
  flags: VerifyFlags,
): Promise<void> {
  const keys = flags.key === undefined ? undefined : readKeyFile(flags.key, arithmetic)
  if (flags.pin !== undefined) checkReplaceable(flags.pin)
  const pins = flags.pin === undefined ? {} : readPins(flags.pin)
  const trust: VerifierOptions = { keys, tree: flags.tree, pinOf: (orgId) => findPin(pins, orgId) }
  const verdicts =
    file === undefined
      ? await verifyService(run, contract, () => arithmetic.begin(trust))
      : [await verifyFile(file, arithmetic, trust, flags.threads)]
  const known = await updatePins(verdicts, flags.pin, pins, arithmetic)
  await printVerdicts(run, known)
}

function readKeyFile(path: string, arithmetic: VerifierFunctions): Buffer[] {
  const cannot = (message: string, cause?: unknown) =>
    new CliError(message, { exit: exitCodes.unverifiable, code: 'unknown_key', cause })
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw cannot(`Cannot read ${path}: ${(error as Error).message}`, error)
  }
  const keys = arithmetic.readKeys(text)
  if (typeof keys === 'number') throw cannot(`${path}, line ${keys}: this is not a key`)
  if (keys.length === 0) throw cannot(`${path} contains no key`)
  return keys
}

/** Stores the pins of sound chains. */
async function updatePins(
  verdicts: NamedVerdict[],
  file: string | undefined,
  pins: Pins,
  { pinOf }: VerifierFunctions,
): Promise<NamedVerdict[]> {
  if (file === undefined) return verdicts
  const now = new Date().toISOString()
  const seen: SeenPin[] = []
  const named = verdicts.map((one): NamedVerdict => {
    if (one.verdict !== 'sound') return one
    const before = findPin(pins, one.orgId)
    const lost = one.pin === 'restored' ? before : undefined
    seen.push({ orgId: one.orgId, pin: pinOf(one, now, before), lost })
    return before ? one : { ...one, pin: 'new' }
  })
  await savePins(file, seen)
  return named
}

/** Smaller files are verified faster than a thread starts. */
const minThreadedBytes = 32 << 20

async function verifyFile(
  path: string,
  arithmetic: VerifierFunctions,
  trust: VerifierOptions,
  threads: number | undefined,
): Promise<NamedVerdict> {
  const progress = progressBar('Verifying', 'rows')
  const name = path === '-' ? 'standard input' : escapeToOneLine(path)
  try {
    const verdict =
      (path !== '-' && (await verifyInThreads(path, arithmetic, trust, threads, progress))) ||
      (await verifyStream(
        gunzipped(path === '-' ? process.stdin : streamOf(path)),
        arithmetic.begin(trust),
        progress,
      ))
    return { name, ...verdict }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    return { name, ...unreadable(null, new Error(code ?? message)) }
  } finally {
    progress.end()
  }
}

const streamOf = (path: string) => createReadStream(path, { highWaterMark: 256 << 10 })

/** undefined when a file is not divided. */
async function verifyInThreads(
  path: string,
  { verifyRanges }: VerifierFunctions,
  trust: VerifierOptions,
  threads: number | undefined,
  progress: ProgressBar,
): Promise<Verdict | undefined> {
  const descriptor = openSync(path, 'r')
  try {
    const file = fstatSync(descriptor)
    const wanted = threads ?? (file.size < minThreadedBytes ? 1 : availableParallelism())
    if (wanted === 1 || !file.isFile() || isZipped(descriptor)) return undefined
    const options = { size: file.size, threads: wanted, trust }
    return await verifyRanges(descriptor, options, (entries) => progress.done(entries))
  } finally {
    closeSync(descriptor)
  }
}

async function verifyService(
  run: CommandContext,
  { chain, heads }: typeof auditLogs,
  begin: () => ChainVerifier,
): Promise<NamedVerdict[]> {
  const { client } = run
  const wanted = await resolveAuditOrg(run)
  const { data } = await client.call(heads)
  const known = wanted === undefined ? data : data.filter(({ orgId }) => orgId === wanted)
  const chains =
    wanted !== undefined && known.length === 0
      ? [{ orgId: wanted, name: wanted, seq: 0, deletedAt: null }]
      : known
  const verdicts: NamedVerdict[] = []
  for (const { orgId, name, seq, deletedAt } of chains) {
    const progress = progressBar('Verifying', 'rows', seq)
    const of = { name: escapeToOneLine(name), ...(deletedAt && { deletedAt }) }
    try {
      const lines = client.stream(chain, { query: { orgId: orgId ?? undefined } })
      const verdict = await verifyStream(lines, begin(), progress)
      verdicts.push({ ...of, ...(checkChainIdentity(verdict, orgId) ?? verdict) })
    } catch (failure) {
      // For a single requested chain the failure itself is the answer.
      if (wanted !== undefined) throw failure
      verdicts.push({ ...of, ...unreadable(orgId, failure as Error) })
    } finally {
      progress.end()
    }
  }
  return verdicts
}

/** An unreadable chain does not affect the verdicts of others. */
const unreadable = (orgId: string | null, { message }: Error): Verdict => {
  const fault = { kind: 'unreadable' as const, message: `it cannot be read (${message})`, seq: 1 }
  return { verdict: 'unverifiable', orgId, entries: 0, fault }
}

/** An answer about another chain than the one asked for proves nothing about it. */
function checkChainIdentity(verdict: Verdict, orgId: string | null): Verdict | undefined {
  if (verdict.orgId === orgId || verdict.verdict !== 'sound') return undefined
  const fault = { kind: 'foreign' as const, message: 'The service sent another chain', seq: 1 }
  return { verdict: 'unverifiable', orgId, entries: verdict.entries, fault }
}

async function verifyStream(
  source: AsyncIterable<Buffer>,
  verifier: ChainVerifier,
  progress: ProgressBar,
): Promise<Verdict> {
  for await (const chunk of source) {
    const verdict = verifier.push(chunk)
    if (verdict) return verdict
    progress.done(verifier.entries)
  }
  return verifier.end()
}

const gzip = Buffer.from([0x1f, 0x8b])

function isZipped(descriptor: number): boolean {
  const first = Buffer.alloc(gzip.length)
  readSync(descriptor, first, 0, first.length, 0)
  return first.equals(gzip)
}

/** Decompresses gzip; other input is passed through. */
async function* gunzipped(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const chunks = source[Symbol.asyncIterator]()
  let head = Buffer.alloc(0)
  while (head.length < gzip.length) {
    const { value, done } = await chunks.next()
    if (done) break
    head = Buffer.concat([head, value])
  }
  const whole = (async function* () {
    yield head
    yield* { [Symbol.asyncIterator]: () => chunks }
  })()
  if (!head.subarray(0, gzip.length).equals(gzip)) return yield* whole
  // The reader gets the error.
  yield* pipeline(Readable.from(whole), createGunzip(), () => {}) as AsyncIterable<Buffer>
}
