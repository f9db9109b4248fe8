import { ApiCommand } from '../../src/cli/command.ts'
import { conditionFlags, explainFilter } from '../../src/cli/filters.ts'
import { textArg } from '../../src/cli/flags.ts'

export default class FiltersExplain extends ApiCommand {
  static override summary = 'Explain a filter, condition by condition'
  static override description = 'With --where or --file it works without a service.'
  static override examples = [
    "svc filters explain --where 'status = online and (tags has any (prod, web) or hostname contains sql)'\nDevices of which all of this is true\n├─ Status is online\n└─ at least one of\n   ├─ Tags has at least one of prod, web\n   └─ Hostname contains sql",
    "The JSON for the API\nsvc filters explain --where 'tags is empty' --json --jq .conditions",
    "svc filters explain 'Stale machines'",
  ]
  static override args = { filter: textArg('The saved filter: id or name', false) }
  static override flags = conditionFlags

  async run(): Promise<void> {
    const { args, flags } = await this.parse(FiltersExplain)
    await explainFilter(() => this.open(flags), { ...flags, filter: args.filter as string | undefined })
  }
}
