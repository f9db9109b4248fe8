import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from '@oclif/core/command'
import { fail } from '../../../src/cli/fail.ts'
import { Program } from '../../../src/cli/program.ts'
import { guardStream } from '../../../src/core/terminal.ts'
import { root } from '../../laws/imports.ts'

type Runnable = new (argv: string[], program: Program) => { _run(): Promise<unknown> }
type Stream = { isTTY: boolean; columns?: number; write: NodeJS.WriteStream['write'] }

/** A stream that keeps what a terminal of so many columns receives; without columns it is a pipe. */
function streamOf(columns: number | undefined, keep: (text: string) => void): Stream {
  const write = (chunk: string | Uint8Array, done?: () => void) => {
    keep(String(chunk))
    done?.()
    return true
  }
  const stream = {
    isTTY: columns !== undefined,
    ...(columns && { columns }),
    write,
    emit: () => true,
  } as Stream
  guardStream(stream as NodeJS.WriteStream, () => {})
  return stream
}

/** Runs `work` while the standard streams of this process are others; returns what they received, in one. */
export async function captured(columns: number | undefined, work: () => unknown): Promise<string> {
  let text = ''
  const streams = [process.stdout, process.stderr].map((stream) => {
    const fake = streamOf(columns, (more) => {
      text += more
    })
    const names = ['isTTY', 'columns', 'write'] as const
    const former = names.map((name) => [name, Object.getOwnPropertyDescriptor(stream, name)] as const)
    for (const name of names)
      Object.defineProperty(stream, name, { value: fake[name], configurable: true, writable: true })
    return () => {
      for (const [name, before] of former) {
        if (before) Object.defineProperty(stream, name, before)
        else delete (stream as unknown as Record<string, unknown>)[name]
      }
    }
  })
  try {
    await work()
  } finally {
    for (const restore of streams) restore()
  }
  return text
}

/** What a terminal shows of one command line of the real program, run in this process. */
export async function screenOf(
  load: () => Promise<{ default: Command.Class }>,
  argv: string[],
  { url, columns, env = {} }: { url: string; columns: number | undefined; env?: Record<string, string> },
): Promise<string> {
  const config = mkdtempSync(join(tmpdir(), 'svc-screens-'))
  const before = process.env
  const signals = ['SIGINT', 'SIGTERM'] as const
  const listeners = signals.map((signal) => process.listeners(signal))
  process.env = { SVC_URL: url, SVC_TOKEN: 'token', SVC_CONFIG_DIR: config, TERM: 'xterm-256color', ...env }
  try {
    const program = await Program.open({ root })
    const Loaded = (await load()).default as unknown as Runnable
    return await captured(columns, () => new Loaded(argv, program)._run().catch((error) => fail(error, argv)))
  } finally {
    process.env = before
    for (const [n, signal] of signals.entries()) {
      process.removeAllListeners(signal)
      for (const one of listeners[n]!) process.on(signal, one)
    }
    rmSync(config, { recursive: true, force: true })
  }
}

/** With escapes that an editor shows. */
export const readable = (text: string): string => text.replaceAll('\r\n', '\n').replaceAll('\u001b', '␛')
