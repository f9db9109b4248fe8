import { createReadStream } from 'node:fs'
import type { Verdict } from '../audit/chain.ts'
import type { auditLogs } from '../audit/contract.ts'
import type { Session } from './base.ts'
import { exits, Silent } from './exit.ts'
import { printRecord, say, write } from './print.ts'
import { bar, grouped } from './progress.ts'
import { resolveId } from './resolve.ts'
import { styleFor } from './style.ts'
import { printable } from './table.ts'

type Contract = typeof auditLogs
type Verifier = { readonly entries: number; push(chunk: Buffer): Verdict | undefined; end(): Verdict }

export type NamedVerdict = Verdict & { name: string }

export const orgOf = async ({ client, settings }: Session): Promise<string | undefined> =>
  settings.org.value ? resolveId(client, 'organization', settings.org.value) : undefined

export async function verifyFile(run: Session, path: string, begin: () => Verifier): Promise<void> {
  const source = path === '-' ? process.stdin : createReadStream(path, { highWaterMark: 1024 * 1024 })
  const name = path === '-' ? 'standard input' : path
  const verdict = await judge(source as AsyncIterable<Buffer>, begin()).catch(
    (error: Error): Verdict => ({
      verdict: 'unverifiable',
      orgId: null,
      entries: 0,
      fault: {
        kind: 'unreadable',
        message: `it cannot be read (${(error as NodeJS.ErrnoException).code ?? error.message})`,
        seq: 1,
      },
    }),
  )
  await conclude(run, [{ name, ...verdict }])
}

export async function verifyChains(
  run: Session,
  { chain, heads }: Contract,
  begin: () => Verifier,
): Promise<void> {
  const { client } = run
  const wanted = await orgOf(run)
  const { data } = await client.call(heads)
  const known = wanted === undefined ? data : data.filter(({ orgId }) => orgId === wanted)
  const chains =
    wanted !== undefined && known.length === 0 ? [{ orgId: wanted, name: wanted, seq: 0 }] : known
  const verdicts: NamedVerdict[] = []
  for (const { orgId, name, seq } of chains) {
    const stream = client.stream(chain, { query: { orgId: orgId ?? undefined } })
    const verdict = await judge(stream, begin(), seq)
    verdicts.push({ name: printable(name), ...verdict, ...elsewhere(verdict, orgId) })
  }
  await conclude(run, verdicts)
}

/** An answer about another chain than the one asked for proves nothing about it. */
function elsewhere(verdict: Verdict, orgId: string | null): Verdict | undefined {
  if (verdict.orgId === orgId || verdict.verdict !== 'sound') return undefined
  const fault = { kind: 'foreign' as const, message: 'The service sent another chain', seq: 1 }
  return { verdict: 'unverifiable', orgId, entries: verdict.entries, fault }
}

async function judge(source: AsyncIterable<Buffer>, verifier: Verifier, total?: number): Promise<Verdict> {
  const progress = bar('Verifying', 'rows', total)
  try {
    for await (const chunk of source) {
      const verdict = verifier.push(chunk)
      if (verdict) return verdict
      progress.done(verifier.entries)
    }
    return verifier.end()
  } finally {
    progress.end()
  }
}

/** Prints the verdicts and ends with the exit code of the worst. */
async function conclude({ output }: Session, chains: NamedVerdict[]): Promise<void> {
  const has = (verdict: Verdict['verdict']) => chains.some((one) => one.verdict === verdict)
  const verdict = has('tampered')
    ? 'tampered'
    : has('unverifiable') || chains.length === 0
      ? 'unverifiable'
      : 'sound'
  if (output.format !== 'plain') {
    const entries = chains.reduce((sum, one) => sum + one.entries, 0)
    await printRecord(output, { verdict, entries, chains }, undefined)
  } else {
    const style = await styleFor(process.stdout)
    for (const one of chains) await write(`${lineFor(one, style)}\n`)
    if (chains.length === 0) say('There is no chain you can read')
  }
  if (verdict !== 'sound') throw new Silent(verdict === 'tampered' ? exits.failure : exits.unverifiable)
}

type Style = Awaited<ReturnType<typeof styleFor>>

function lineFor(one: NamedVerdict, style: Style): string {
  if (one.verdict === 'sound') {
    return `${style.good('Sound:')} ${one.name}, ${grouped(one.entries)} entries, up to ${one.head.checksum.slice(0, 12)}`
  }
  if (one.verdict === 'unverifiable')
    return `${style.careful('Cannot tell:')} ${one.name}: ${one.fault.message}`
  const { seq, message, entry } = one.fault
  const about = [entry?.id && `id ${entry.id}`, entry?.action && `action ${entry.action}`, entry?.timestamp]
    .filter((text) => text !== undefined && text !== '')
    .map((text) => printable(String(text)))
  return `${style.bad('TAMPERED:')} ${one.name}, entry ${seq}: ${message}${about.length > 0 ? `\n  ${about.join(', ')}` : ''}`
}
