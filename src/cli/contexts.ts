import { selectColumns } from './columns.ts'
import { type Context, checkContextName, getContext, readConfig, updateConfig } from './config-file.ts'
import { removeSession } from './credential-store.ts'
import { type Output, rowPrinter } from './print.ts'
import { checkUrl, isSameUrl } from './settings.ts'

export async function listContexts(output: Output): Promise<void> {
  const { contexts, current } = readConfig()
  const json = ['json', 'yaml', 'ndjson'].includes(output.format)
  const rows = Object.entries(contexts).map(([name, { url, org, identity, store }]) => ({
    id: name,
    current: json ? name === current : name === current ? '*' : ' ',
    name,
    url,
    org: org ?? null,
    email: identity?.email ?? null,
    scope: identity?.scope ?? null,
    store: store ?? null,
  }))
  const columns = selectColumns(output, ['current', 'name', 'url', 'org', 'email', 'scope', 'store'])
  const printer = rowPrinter(output, columns)
  await printer.rows(json ? rows.map(({ id: _, ...row }) => row) : rows)
  await printer.end()
}

export async function addContext(
  name: string,
  flags: { url: string; org?: string | undefined; use?: boolean | undefined },
): Promise<Context> {
  const url = checkUrl(flags.url, '--url')
  const profile = await updateConfig((profile) => {
    const before = profile.contexts[checkContextName(name)]
    // Another address is another service: its identity is not valid here.
    const kept = before && isSameUrl(before.url, url) ? before : {}
    profile.contexts[name] = { ...kept, url, ...(flags.org && { org: flags.org }) }
    if (flags.use || profile.current === undefined) profile.current = name
  })
  return profile.contexts[name]!
}

export async function useContext(name: string): Promise<Context> {
  return getContext(
    await updateConfig((profile) => {
      getContext(profile, name)
      profile.current = name
    }),
    name,
  )
}

export async function removeContext(name: string): Promise<void> {
  const { store } = getContext(readConfig(), name)
  if (store) await removeSession({ kind: store, context: name })
  await updateConfig((profile) => {
    delete profile.contexts[name]
    if (profile.current === name) delete profile.current
  })
}
