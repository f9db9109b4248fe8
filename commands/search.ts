import { custom, integer } from '@oclif/core/flags'
import { ApiCommand } from '../src/cli/command.ts'
import { textArg } from '../src/cli/flags.ts'
import { resultTypes, searchFor } from '../src/cli/search.ts'
import { search } from '../src/search/contract.ts'

export default class Search extends ApiCommand {
  static override endpoints = ['GET /search']
  static override summary = search.everything.summary
  static override description =
    'Best match first: equal texts, then texts that begin with it, then texts with a word that does. Letter case is ignored.'
  static override examples = [
    'svc search desk\nTYPE     TITLE           DESCRIPTION     ID\ndevices  Desk of Ada     pc-17 · online  0197c1c4-9e21-7d10-b6a4-3c2f1e0d9b8a\nalerts   Desk unplugged  high            0197c1c9-64a1-7e22-8f05-7a8b9c0d1e2f',
    'svc search desk --type devices -q\n0197c1c4-9e21-7d10-b6a4-3c2f1e0d9b8a',
    'svc search desk --org blue-bakery',
  ]
  static override args = { text: textArg('Part of a name, title or description') }
  static override flags = {
    type: custom<string>({ description: 'Only this kind', options: [...resultTypes] })(),
    limit: integer({ description: 'Total number of results, at most 50', helpValue: 'N', min: 1, max: 50 }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(Search)
    await searchFor(this.open(flags), args.text as string, flags)
  }
}
