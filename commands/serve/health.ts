import { integer, string } from '@oclif/core/flags'
import { LocalCommand } from '../../src/cli/base.ts'
import { exitCodes, SilentExit } from '../../src/cli/exit-codes.ts'
import { parseOutputFlags, printRecord } from '../../src/cli/print.ts'

export default class ServeHealth extends LocalCommand {
  static override summary = 'Ask the service of this machine whether it is ready'
  static override description =
    'For the health check of a container, beside `svc serve` and with its environment: exit 0 when /health/ready answers that it is ' +
    'ready, 1 when it does not. svc doctor examines the rest.'
  static override examples = ['svc serve health\nready', 'svc serve health --port 8080 --json']
  static override flags = {
    host: string({ description: 'As for svc serve [env: HOST]', helpValue: 'HOST' }),
    port: integer({ description: 'As for svc serve [env: PORT]', helpValue: 'PORT', min: 1, max: 65_535 }),
  }

  async run(): Promise<void> {
    const { flags } = await this.parse(ServeHealth)
    const output = parseOutputFlags(flags)
    // It reads no other setting, and no secret.
    const { listenAddressOf } = await import('../../daemon/config.ts')
    const { askReadiness } = await import('../../daemon/doctor/readiness.ts')
    const answer = await askReadiness(listenAddressOf(flags))
    await printRecord(output, answer, undefined, ({ status, reason }) =>
      reason === null ? `${status}\n` : `${status}: ${reason}\n`,
    )
    if (answer.status !== 'ready') throw new SilentExit(exitCodes.failure)
  }
}
