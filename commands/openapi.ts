import { ApiCommand } from '../src/cli/command.ts'
import { writeJson, writeStdout } from '../src/cli/print.ts'

export default class OpenApi extends ApiCommand {
  static override summary = 'Print the OpenAPI document of the service'
  static override description =
    'People read it at /docs of the service: an index with a search, and an example with curl and svc of each endpoint.'
  static override examples = ['svc openapi > openapi.json', 'svc openapi -o yaml > openapi.yaml']

  async run(): Promise<void> {
    const { flags } = await this.parse(OpenApi)
    const run = this.open(flags)
    const { text } = await run.anonymous.raw('GET', '/openapi.json')
    const document: unknown = JSON.parse(text)
    if (run.output.format !== 'yaml') return writeJson(run.output, document)
    const { stringify } = await import('yaml')
    await writeStdout(stringify(document))
  }
}
