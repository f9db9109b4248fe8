import { selectColumns } from '../../src/cli/columns.ts'
import { ApiCommand } from '../../src/cli/command.ts'
import { printCatalog } from '../../src/cli/roles.ts'
import { permissions } from '../../src/identity/permissions/contract.ts'

export default class RolesPermissions extends ApiCommand {
  static override endpoints = ['GET /permissions/catalog']
  static override summary = permissions.catalog.summary
  static override examples = [
    'svc roles permissions\nPERMISSION           DESCRIPTION\ndevices:read         See devices\ndevices:write        Create and change devices',
    'svc roles permissions --csv',
  ]

  async run(): Promise<void> {
    const { flags } = await this.parse(RolesPermissions)
    const { client, output } = this.open(flags)
    const known = ['permission', 'resource', 'action', 'description']
    const columns = selectColumns(
      output,
      known,
      output.format === 'csv' ? known : ['permission', 'description'],
    )
    await printCatalog(output, await client.call(permissions.catalog), columns)
  }
}
