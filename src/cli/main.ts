import { fileURLToPath } from 'node:url'
import type { Command } from '@oclif/core/command'
import { getHelpFlagAdditions, normalizeArgv } from '@oclif/core/help'
import { packageFile } from '../core/package-files.ts'
import { guardTerminal } from '../core/terminal.ts'
import { type Layout, Program } from './program.ts'
import { bufferNotes, flushNotes, wantsJson } from './stderr-notes.ts'

const compiled: Layout = { root: fileURLToPath(packageFile('.')) }

/** Runs one command line and ends the process. */
export async function main(argv: string[], layout: Layout = compiled): Promise<void> {
  guardTerminal()
  // A reader that closes early, such as head, is not a failure.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
  })
  if (wantsJson(argv)) bufferNotes()
  let code: number
  try {
    await dispatch(argv, await Program.open(layout))
    flushNotes()
    code = Number(process.exitCode ?? 0)
  } catch (error) {
    const { fail } = await import('./fail.ts')
    code = await fail(error, argv)
  }
  await flushed()
  process.exit(code)
}

async function dispatch(argv: string[], program: Program): Promise<void> {
  if (argv[0] === '--version') return void process.stdout.write(`${program.userAgent}\n`)
  const [id = '', ...rest] = normalizeArgv(program, [...argv])
  const helpFlags = [...getHelpFlagAdditions(program), '-h']
  const end = argv.indexOf('--')
  const asksHelp = (end === -1 ? argv : argv.slice(0, end)).some((word) => helpFlags.includes(word))
  const command = program.findCommand(id)
  if (argv.length === 0 || asksHelp || (!command && program.findTopic(id))) {
    const { default: Help } = await import('./help.ts')
    return new Help(program).showHelp(asksHelp ? argv.filter((word) => !helpFlags.includes(word)) : argv)
  }
  if (!command) throw (await import('./fail.ts')).unknownCommand(id, program.commandIDs)
  const loaded = await command.load()
  await start(loaded, rest, program)
}

type Runnable = new (argv: string[], program: Program) => { _run(): Promise<unknown> }

/** What `Command.run` does after it has loaded the configuration once more. */
const start = (loaded: Command.Class, argv: string[], program: Program): Promise<unknown> =>
  new (loaded as unknown as Runnable)(argv, program)._run()

const flushed = (): Promise<unknown> =>
  Promise.all(
    [process.stdout, process.stderr].map(
      (stream) => new Promise<void>((resolve) => void stream.write('', () => resolve())),
    ),
  )
