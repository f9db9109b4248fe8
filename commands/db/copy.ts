import { boolean, string } from '@oclif/core/flags'
import { confirmOrThrow, isInteractive } from '../../src/cli/ask.ts'
import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, writeJson, writeStdout } from '../../src/cli/print.ts'
import { formatNumber, type ProgressBar, progressBar } from '../../src/cli/progress.ts'
import { resolveSettings } from '../../src/cli/settings.ts'
import { formatBytes } from '../../src/core/byte-size.ts'

export default class DbCopy extends LocalCommand {
  static override summary = 'Move everything to another database'
  static override description =
    'Copies the database that `svc serve` would use, also while it runs, into an empty one: SQLite to Postgres, back, or to another of the same kind. ' +
    'At the end the service answers reads alone for a moment, while what has changed is copied anew. Then the database stays closed for writing: start svc with the other one. ' +
    'After an interruption, repeat the command: it goes on where it stopped.'
  static override examples = [
    'svc db copy --to /var/lib/svc --dry-run',
    'TARGET_DATABASE_URL_FILE=/run/secrets/new-url svc db copy',
    'svc db copy --reopen --yes\nThis database takes writes again',
  ]
  static override flags = {
    ...dataDirFlag,
    to: string({
      description:
        'Data directory, or URL of Postgres without a password; one with a password comes from TARGET_DATABASE_URL, or the file that TARGET_DATABASE_URL_FILE names',
      helpValue: 'DIR|URL',
    }),
    'dry-run': boolean({ description: 'Show what would be copied, and how long it would take' }),
    reopen: boolean({
      description: 'Let a database take writes again that was moved, and whose copy is not used',
      exclusive: ['to', 'dry-run'],
    }),
    yes: boolean({ char: 'y', description: 'Do not ask before --reopen', dependsOn: ['reopen'] }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(DbCopy)
    const output = parseOutputFlags(flags)
    const isJson = output.format === 'json'
    if (flags.reopen) {
      const { reopen } = await import('../../daemon/copy/reopen.ts')
      await confirmOrThrow(
        'Is no svc serve working with the copy? What it has accepted would be missing here',
        {
          yes: flags.yes,
          interactive: isInteractive(resolveSettings({})),
          hint: 'svc db copy --reopen --yes skips the confirmation; first stop what works with the copy',
        },
      )
      const move = await reopen(flags)
      if (isJson) return writeJson(output, { reopened: true, ...move })
      return writeStdout(`This database takes writes again, which ${move.target} does not get\n`)
    }
    const { copyDatabase, planCopy } = await import('../../daemon/copy/copy.ts')
    if (flags['dry-run']) {
      const plan = await planCopy(flags)
      return isJson ? writeJson(output, plan) : writeStdout(`${described(plan).join('\n')}\n`)
    }
    let shown: { pass: string; bar: ProgressBar } | undefined
    const summary = await copyDatabase(flags, {
      onPlan(plan) {
        if (!isJson) for (const line of described(plan)) printNote(line)
      },
      onProgress(pass, done, total) {
        if (shown?.pass !== pass) {
          shown?.bar.end()
          if (pass === 'last' && !isJson) printNote('Writes are refused now, until the copy is complete')
          shown = { pass, bar: progressBar(passes[pass], 'rows', total) }
        }
        shown.bar.done(done)
      },
    }).finally(() => shown?.bar.end())
    if (isJson) return writeJson(output, summary)
    const { to, rows, files, seconds, rewritten } = summary
    const lines = [
      `Moved ${formatNumber(rows)} rows${files > 0 ? ` and ${counted(files, 'file')}` : ''} to ${to}`,
      `  copied while writes went on in ${duration(seconds.first)}`,
      `  writes were refused for ${duration(seconds.last)}, ${counted(rewritten.rows, 'row')} copied anew`,
      '',
      'Start svc serve with that database. This one stays closed for writing.',
    ]
    await writeStdout(`${lines.join('\n')}\n`)
  }
}

const passes = { first: 'Copying', again: 'Comparing', last: 'Last pass' }

type Plan = {
  from: string
  to: string
  target: { state: 'empty' } | { state: 'unfinished'; rows: number; since: string }
  tables: number
  rows: number
  bytes: number
  seconds: { first: number; last: number }
}

function described({ from, to, target, tables, rows, bytes, seconds }: Plan): string[] {
  const goesOn =
    target.state === 'unfinished'
      ? [`  goes on with the copy of ${target.since}: ${formatNumber(target.rows)} rows are there`]
      : []
  return [
    `From ${from}`,
    `to ${to}:`,
    `  ${formatNumber(rows)} rows of ${tables} tables, ${formatBytes(bytes)}`,
    ...goesOn,
    `  will take about ${duration(seconds.first)}, and then refuse writes for about ${duration(seconds.last)}`,
  ]
}

const counted = (count: number, what: string): string =>
  `${formatNumber(count)} ${what}${count === 1 ? '' : 's'}`

const duration = (seconds: number): string =>
  seconds < 120 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`
