import type { Command } from '@oclif/core/command'
import { selectColumns } from './columns.ts'
import { type Output, rowPrinter } from './print.ts'

/** Every command with its arguments and flags, as the manifest has them. */
export async function listCommands(commands: Command.Loadable[], output: Output): Promise<void> {
  const rows = commands
    .filter(({ hidden }) => !hidden)
    .map(({ id, summary, description, args, flags, examples, endpoints }) => ({
      id: id.replaceAll(':', ' '),
      summary: summary ?? null,
      description: description || null,
      args: Object.values(args).map((arg) => ({
        name: arg.name,
        description: arg.description ?? null,
        required: arg.required === true,
      })),
      flags: Object.values(flags).map((flag) => ({
        name: flag.name,
        char: flag.char ?? null,
        type: flag.type,
        description: flag.description ?? null,
        required: flag.required === true,
        multiple: flag.type === 'option' && flag.multiple === true,
        options: (flag.type === 'option' && flag.options) || null,
      })),
      examples: examples ?? [],
      endpoints: (endpoints as readonly string[] | undefined) ?? [],
    }))
    .sort((a, b) => (a.id < b.id ? -1 : 1))
  const printer = rowPrinter(
    output,
    selectColumns(
      output,
      ['id', 'summary', 'description', 'args', 'flags', 'examples', 'endpoints'],
      ['id', 'summary'],
    ),
  )
  await printer.rows(rows)
  await printer.end()
}
