import { string } from '@oclif/core/flags'
import { readStdinOrFile } from '../ask.ts'
import type { CommandView } from '../command-view.ts'
import { usageError } from '../exit-codes.ts'
import type { FlagSet } from '../flags.ts'

/** `--header 'Name: value'` for the list of headers; a secret value is read from a file. */
export const headerFlags: NonNullable<CommandView['customFlags']> = {
  fields: ['headers'],
  flags: {
    header: string({
      description:
        "A custom header of every delivery, 'Name: value'; 'Name: @file' for a secret; none for no headers",
      helpValue: 'HEADER',
      multiple: true,
      multipleNonGreedy: true,
    }),
  } as unknown as FlagSet,
  values: async ({ header }) => ({
    headers: header === undefined ? undefined : await parseHeaders(header as string[]),
  }),
}

const parseHeaders = async (said: readonly string[]) =>
  said.length === 1 && said[0] === 'none' ? [] : Promise.all(said.map(parseHeader))

export async function parseHeader(said: string): Promise<{ key: string; value: string }> {
  const colon = said.indexOf(':')
  if (colon < 1) throw usageError(`--header takes 'Name: value', not "${said}"`)
  const value = said.slice(colon + 1).trim()
  const read = await readStdinOrFile(value, '--header')
  return { key: said.slice(0, colon).trim(), value: read?.replace(/\r?\n$/, '') ?? value }
}
