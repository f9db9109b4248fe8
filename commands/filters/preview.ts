import { integer } from '@oclif/core/flags'
import { ApiCommand } from '../../src/cli/command.ts'
import { conditionFlags, preview } from '../../src/cli/filters.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class FiltersPreview extends ApiCommand {
  static override endpoints = ['POST /filters/preview', 'POST /filters/:id/preview']
  static override summary = 'Show the devices that match a filter, saved or not'
  static override description = 'The total number goes to standard error.'
  static override examples = [
    "svc filters preview 'Stale machines'\nHOSTNAME  DISPLAY NAME  OS TYPE  STATUS   LAST SEEN AT              ID\npc-17     Front desk    windows  offline  2025-12-24T16:01:09.000Z  0197c1c4-9e21-7d10-b6a4-3c2f1e0d9b8a\n1 device matches",
    "svc filters preview --where 'status = online and hardware.cpuCores >= 8' --limit 100 -q",
    'svc filters preview --file tree.json --json --jq .data.totalCount\n412',
  ]
  static override args = { filter: textArg('The saved filter: id or name', false) }
  static override flags = {
    ...conditionFlags,
    limit: integer({ description: 'Devices to show, at most 100', helpValue: 'N' }),
  }

  async run(): Promise<void> {
    const { args, flags } = await this.parse(FiltersPreview)
    const filter = args.filter as string | undefined
    await preview(this.open(flags), { ...flags, filter }, flags.limit)
  }
}
