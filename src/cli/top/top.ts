import { type Overview, overview } from '../../overview/contract.ts'
import { pollingClient } from '../api-client.ts'
import type { CommandContext } from '../base.ts'
import { usageError } from '../exit-codes.ts'
import { canRedraw, poll, quitHint, showLive } from '../live-screen.ts'
import { toJson, writeJson, writeStdout } from '../print.ts'
import { withSpinner } from '../progress.ts'
import { resolveId } from '../resolve.ts'
import { styleFor } from '../style.ts'
import { History } from './history.ts'
import { drawTop } from './screen.ts'

type Options = { once: boolean; everyMs: number }

/** Columns and lines where there is no terminal. */
const page = { columns: 80, rows: 60 }

/** Shows the state of a fleet: live on a terminal, once in a pipe, as a stream of documents with --json. */
export async function showTop(session: CommandContext, { once, everyMs }: Options): Promise<void> {
  const { client, output, settings } = session
  const isJson = output.format === 'json' || output.format === 'ndjson'
  if ((output.format !== 'plain' && !isJson) || output.columns !== undefined)
    throw usageError('This is a screen, or JSON', 'use --json, or --jq')
  const org = settings.org.value
  const query = org ? { orgId: await resolveId(client, 'organization', org) } : {}
  const isLive = !once && (isJson || canRedraw())
  const reader = isLive ? pollingClient(session.clientOptions) : client
  const read = () => reader.call(overview.show, { query })
  if (isJson) {
    if (once) return writeJson(output, await read())
    const print = (it: Overview) =>
      output.jq === undefined ? writeStdout(`${toJson(it)}\n`) : writeJson(output, it)
    return poll({ read, everyMs }, print)
  }
  const history = new History()
  const style = styleFor(process.stdout)
  const title = (it: Overview) => `svc top: ${it.scope} scope, ${settings.url.value}`
  const add = async () => {
    const it = await read()
    history.add(it)
    return it
  }
  if (!isLive) {
    const it = await withSpinner('Waiting for the service', add())
    const { columns = page.columns } = process.stdout
    const lines = drawTop(it, { title: title(it), history, style, ...page, columns })
    return writeStdout(`${lines.join('\n')}\n`)
  }
  return showLive(add, everyMs, (it, size) =>
    drawTop(it, { title: `${title(it)} (${quitHint})`, history, style, ...size }),
  )
}
