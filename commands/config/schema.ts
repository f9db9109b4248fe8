import { LocalCommand } from '../../src/cli/base.ts'
import { parseOutputFlags } from '../../src/cli/print.ts'

export default class ConfigSchema extends LocalCommand {
  static override summary = 'Print the JSON Schema of configuration files, for editors'
  static override description =
    'In an editor with the YAML language server: # yaml-language-server: $schema=svc-config.schema.json'
  static override examples = ['svc config schema > svc-config.schema.json']

  async run(): Promise<void> {
    const { flags } = await this.parse(ConfigSchema)
    const { printSchema } = await import('../../src/cli/config/run.ts')
    await printSchema({ output: parseOutputFlags(flags) })
  }
}
