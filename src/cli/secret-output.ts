import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { devNull } from 'node:os'
import type { z } from 'zod'
import { renderRecord } from './card.ts'
import { displayOf } from './display.ts'
import { exitCodes, fileError, usageError } from './exit-codes.ts'
import { fileExists } from './files.ts'
import { idBeginningOf } from './id-beginning.ts'
import { lineEscaper, type Output, printNote, printRecord, writeStdout } from './print.ts'
import { exitOnLostOutput } from './run-and-exit.ts'

const lost = 'it was made, and nobody has it: rotate it, or delete the record'

/** A new file for a secret, created before the request: otherwise a created secret could not be stored. */
type SecretFile = { keep(secret: string): void; discard(): void }

/** More than a secret takes: a full disk shows before the request. */
const room = 4096

function secretFile(path: string): SecretFile {
  let file: number
  try {
    file = openSync(path, 'wx', 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST')
      throw fileExists(path, 'choose another --out-file')
    throw usageError(`Cannot create ${path}: ${(error as Error).message}`)
  }
  const discard = () => {
    closeSync(file)
    rmSync(path, { force: true })
  }
  const attempt = (write: () => void, hint?: string) => {
    try {
      write()
    } catch (error) {
      discard()
      throw fileError(`Cannot write ${path}: ${(error as Error).message}`, hint)
    }
  }
  attempt(() => {
    writeSync(file, ' '.repeat(room))
    fsyncSync(file)
  })
  return {
    keep(secret) {
      attempt(() => {
        ftruncateSync(file, writeSync(file, `${secret}\n`, 0))
        fsyncSync(file)
      }, lost)
      closeSync(file)
    },
    discard,
  }
}

/** Refuses formats that would leave out a secret that is displayed only once. */
export function checkSecretShown(output: Output, key: string, outFile: string | undefined): void {
  if (outFile === undefined && !isShown(output, key))
    throw usageError(`The ${key} is displayed only once and this output leaves it out`, 'add --out-file FILE')
  if (outFile === undefined && leadsNowhere())
    throw usageError(
      `The ${key} is displayed only once and standard output leads nowhere`,
      'add --out-file FILE',
    )
}

/** To the null device, which Node also opens in place of a standard output that is closed. */
function leadsNowhere(): boolean {
  try {
    const output = fstatSync(1)
    return output.isCharacterDevice() && output.rdev === statSync(devNull).rdev
  } catch {
    // Where there is no null device, output does not lead to it.
    return false
  }
}

function isShown({ format, columns }: Output, key: string): boolean {
  if (format === 'id') return false
  return columns?.split(',').some((name) => name.trim().toLowerCase() === key.toLowerCase()) ?? true
}

/** On a terminal an id stands beside the name that was typed for it. */
function withNames(record: Record<string, unknown>, names: Once['names']): Record<string, unknown> {
  if (!process.stderr.isTTY) return record
  const named = Object.entries(names).filter(
    ([field, word]) => typeof record[field] === 'string' && word && idBeginningOf(word) === undefined,
  )
  return {
    ...record,
    ...Object.fromEntries(named.map(([field, word]) => [field, `${record[field]} (${word})`])),
  }
}

type Once = {
  key: string
  outFile: string | undefined
  another: string | undefined
  /** Of the fields that have ids: the words by which the caller has named them. */
  names: Readonly<Record<string, string | undefined>>
  instructions: { text: (secret: string) => string; where: string } | undefined
}

/**
 * Sends the request and prints the record with its secret, which is displayed only once. Plain: the secret alone
 * on standard output, so that it can be piped to a secret store, and everything else on standard error. `another` is the
 * command that replaces a secret that the output left out. `instructions` are printed in place of the secret.
 */
export async function printSecretOnce(
  output: Output,
  send: () => Promise<Record<string, unknown>>,
  schema: z.ZodType,
  { key, outFile, another, names, instructions }: Once,
): Promise<void> {
  const file = outFile === undefined ? undefined : secretFile(outFile)
  const record = await send().catch((error: unknown) => {
    file?.discard()
    throw error
  })
  exitOnLostOutput(exitCodes.failure, lost)
  const { [key]: secret, ...rest } = record
  const command = instructions?.text(String(secret))
  const name = command === undefined ? `The ${key}` : `The command, with the ${key},`
  if (file) {
    file.keep(command ?? String(secret))
    if (output.format !== 'plain') await printRecord(output, rest, schema)
    else process.stderr.write(renderRecord(withNames(rest, names), displayOf(process.stderr, output)))
    printNote(
      `${name} is in ${outFile} (mode 0600). It is not displayed again${instructions ? `: ${instructions.where}` : ''}.`,
    )
    return
  }
  if (output.format !== 'plain' || output.columns !== undefined) {
    await printRecord(output, command === undefined ? record : { ...record, instructions: command }, schema)
    if (another !== undefined && !isShown(output, key))
      printNote(`The ${key} is not part of this output, and is not displayed again: ${another} replaces it`)
    return
  }
  process.stderr.write(renderRecord(withNames(rest, names), displayOf(process.stderr, output)))
  printNote(
    `${name} follows on standard output. It is not displayed again: ${instructions?.where ?? 'store it now'}.`,
  )
  await writeStdout(`${(await lineEscaper())(command ?? String(secret))}\n`)
}
