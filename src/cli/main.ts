import { fileURLToPath } from 'node:url'
import type { Command } from '@oclif/core/command'
import { getHelpFlagAdditions, normalizeArgv } from '@oclif/core/help'
import { packageFile } from '../core/package-files.ts'
import { type Layout, Program } from './program.ts'
import { runAndExit } from './run-and-exit.ts'
import { serviceVersion } from './service-version.ts'
import { wantsJson } from './stderr-notes.ts'

const compiled: Layout = { root: fileURLToPath(packageFile('.')) }

/** Runs one command line and ends the process. */
export const main = (argv: string[], layout: Layout = compiled): Promise<never> =>
  runAndExit(argv, async () => {
    const program = await Program.open(layout)
    try {
      await dispatch(argv, program)
    } finally {
      const isSeen = process.stderr.isTTY && !wantsJson(argv)
      if (isSeen && !unattended.has(argv[0] ?? '')) await notices(program)
    }
  })

/** Commands that a shell or the system calls, and commands that serve. */
const unattended = new Set(['agent', 'complete', 'completion', 'serve', 'update-check'])

/** Whatever goes wrong here must not fail the command, which has ended. */
async function notices({ version }: Program): Promise<void> {
  const met = serviceVersion()?.version ?? version
  if (met === version && !process.env.UPDATE_URL) return
  try {
    const { printNotices } = await import('./notices.ts')
    printNotices(version)
  } catch {
    // Such as a home directory that cannot be written.
  }
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
  if (!command)
    throw (await import('./fail.ts')).unknownCommand(
      id,
      program.commands.map((one) => one.id),
    )
  const loaded = await command.load()
  await start(loaded, rest, program)
}

type Runnable = new (argv: string[], program: Program) => { _run(): Promise<unknown> }

/** What `Command.run` does after it has loaded the configuration once more. */
const start = (loaded: Command.Class, argv: string[], program: Program): Promise<unknown> =>
  new (loaded as unknown as Runnable)(argv, program)._run()
