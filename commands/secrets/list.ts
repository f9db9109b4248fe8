import { LocalCommand } from '../../src/cli/base.ts'
import { dataDirFlag } from '../../src/cli/flags.ts'
import { parseOutputFlags, printNote, rowPrinter } from '../../src/cli/print.ts'

type NamedId = { name: string; id: string }
type Process = { host: string; pid: number; startedAt: string; has: NamedId[]; lacks: NamedId[] }

export default class SecretsList extends LocalCommand {
  static override summary = 'List the secrets of a service, and what still needs former ones'
  static override description =
    'Shows the secrets as this command reads them, from its own environment and the secrets.json of the data directory: svc-admin gives it those of the service. ' +
    'Then says how the running processes of the service differ from that. Shows ids, never secrets: an id tells two of them apart. ' +
    'Names processes that do not use a new one yet; with --json also those that use each one.'
  static override examples = [
    'svc secrets list\nNAME                ID        STATE     SOURCE     SINCE                     FORMER SINCE              NEEDED BY\nAPP_ENCRYPTION_KEY  5f0c1d2e  current   generated  2026-03-01T12:00:00.000Z\nAPP_ENCRYPTION_KEY  a91b3c4d  previous  generated                            2026-03-01T12:00:00.000Z  12 encrypted values',
  ]
  static override flags = { ...dataDirFlag }

  async run(): Promise<void> {
    const { flags } = await this.parse(SecretsList)
    const { listSecrets } = await import('../../daemon/secrets/rotation.ts')
    const output = parseOutputFlags(flags)
    const printer = rowPrinter(output, ['name', 'id', 'state', 'source', 'since', 'formerSince', 'neededBy'])
    const { file, secrets, processes } = await listSecrets(flags, new Date().toISOString())
    await printer.rows(secrets)
    const hasFormer = secrets.some(({ formerSince }) => formerSince !== null)
    const secondary = ['source', ...(hasFormer ? [] : ['formerSince'])]
    await printer.end((rows) => ({ data: rows, processes }), { secondary })
    if (output.format === 'json' || output.format === 'yaml') return
    printNote(`These are the secrets that this command reads, from its environment and ${file}`)
    for (const line of comparison(processes)) printNote(line)
  }
}

/** Processes that are named. */
const maxNamed = 10

/** How what the running service has differs from the list, a sentence a line. */
function comparison(processes: readonly Process[]): string[] {
  if (processes.length === 0)
    return ['No svc serve runs on this database, so that nothing says which secrets it has']
  const others = processes.filter(({ has, lacks }) => has.length + lacks.length > 0)
  if (others.length === 0) {
    const [{ pid, host }] = processes as [Process]
    return [
      processes.length === 1
        ? `The running service has the same: process ${pid} on ${host}`
        : `The running service has the same in all ${processes.length} processes`,
    ]
  }
  const listed = (ids: readonly NamedId[]) => ids.map(({ name, id }) => `${name} ${id}`).join(', ')
  const lines = others.slice(0, maxNamed).map(({ pid, host, startedAt, has, lacks }) => {
    const differences = [
      ...(has.length > 0 ? [`has ${listed(has)} besides`] : []),
      ...(lacks.length > 0 ? [`lacks ${listed(lacks)}`] : []),
    ]
    return `The running service differs: process ${pid} on ${host} (started ${startedAt}) ${differences.join(', and ')}`
  })
  const more = others.length - lines.length
  return [
    ...lines,
    ...(more > 0 ? [`So do ${more} more processes`] : []),
    'svc-admin secrets list reads the files of the service; a process has what they said when it last read them',
  ]
}
