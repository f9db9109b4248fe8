import { didYouMean } from '../core/suggest.ts'
import type { CommandContext } from './base.ts'
import { usageError } from './exit-codes.ts'
import { configDir } from './files.ts'
import { printRecord, rowPrinter } from './print.ts'
import { apiKeyFrom, type Setting, type Settings } from './settings.ts'

const settings = {
  url: (s: Settings) => s.url,
  context: (s) => s.context,
  org: (s) => s.org,
  timeout: (s) => s.timeout,
  'no-input': (s) => s.noInput,
  debug: (s) => s.debug,
  'ca-file': (s) => s.caFile,
  'credential-store': (s) => s.store,
  'config-dir': () => directory(),
  token: () => credential('SVC_TOKEN'),
  // A token takes precedence over a key.
  'api-key': () => credential('SVC_API_KEY', apiKeyFrom({}) !== undefined),
} satisfies Record<string, (s: Settings) => Setting<unknown>>

export const settingKeys = Object.keys(settings)

function directory(): Setting<string> {
  const given = process.env.SVC_CONFIG_DIR
  const value = configDir()
  const layers = [
    { layer: 'env' as const, source: 'SVC_CONFIG_DIR', value: given ?? null },
    { layer: 'default' as const, source: 'the default', value: given ? null : value },
  ]
  return { value, from: given ? 'env' : 'default', source: given ? 'SVC_CONFIG_DIR' : 'the default', layers }
}

/** Only whether there is one. */
function credential(name: 'SVC_TOKEN' | 'SVC_API_KEY', counts = true): Setting<string | undefined> {
  const given = process.env[name] ? '********' : undefined
  const value = counts ? given : undefined
  const layers = [{ layer: 'env' as const, source: name, value: given ?? null }]
  return { value, from: value ? 'env' : 'default', source: value ? name : 'the default', layers }
}

export async function explain(session: CommandContext, key: string | undefined): Promise<void> {
  if (key !== undefined && !Object.hasOwn(settings, key)) {
    throw usageError(`There is no setting "${key}"`, didYouMean(key, settingKeys) ?? settingKeys.join(', '))
  }
  const { output } = session
  const keys = (key === undefined ? settingKeys : [key]) as (keyof typeof settings)[]
  const said = keys.map((name) => ({ key: name, setting: settings[name](session.settings) }))
  if (['json', 'yaml', 'ndjson'].includes(output.format)) {
    const documents = said.map(({ key: name, setting }) => ({
      key: name,
      value: setting.value ?? null,
      from: setting.value === undefined ? null : setting.from,
      source: setting.value === undefined ? null : setting.source,
      layers: setting.layers,
    }))
    return printRecord(output, key === undefined ? { data: documents } : documents[0], undefined)
  }
  const rows = said.flatMap(({ key: name, setting }) =>
    setting.layers.map(({ layer, source, value }) => ({
      key: name,
      layer,
      source,
      value,
      wins: setting.value !== undefined && source === setting.source ? '*' : null,
    })),
  )
  const columns = ['layer', 'source', 'value', 'wins']
  const printer = rowPrinter(output, key === undefined ? ['key', ...columns] : columns)
  await printer.rows(rows)
  await printer.end()
}
