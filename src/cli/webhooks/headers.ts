import { string } from '@oclif/core/flags'
import { indirect } from '../ask.ts'
import { usage } from '../exit.ts'
import type { FlagSet } from '../flags.ts'
import type { View } from '../view.ts'

/** `--header 'Name: value'` in place of the list of headers; a value that is a secret is read from a file. */
export const saidByHeaders: NonNullable<View['instead']> = {
  fields: ['headers'],
  flags: {
    header: string({
      description: "A header of your own on every delivery, 'Name: value'; 'Name: @file' for a secret",
      helpValue: 'HEADER',
      multiple: true,
      multipleNonGreedy: true,
    }),
  } as unknown as FlagSet,
  values: async ({ header }) => ({
    headers: header === undefined ? undefined : await Promise.all((header as string[]).map(headerFrom)),
  }),
}

async function headerFrom(said: string): Promise<{ key: string; value: string }> {
  const colon = said.indexOf(':')
  if (colon < 1) throw usage(`--header takes 'Name: value', not "${said}"`)
  const value = said.slice(colon + 1).trim()
  const read = await indirect(value, '--header')
  return { key: said.slice(0, colon).trim(), value: read?.replace(/\r?\n$/, '') ?? value }
}
