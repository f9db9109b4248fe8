import { readFile } from 'node:fs/promises'
import type { Endpoint } from '../../src/core/endpoint.ts'
import { exampleOf, someId, toJsonSchema } from '../../src/core/openapi.ts'
import { packageFile } from '../../src/core/package-files.ts'

/** The first example of the command for each endpoint, by its route. */
export type CommandExamples = ReadonlyMap<string, string>

type Manifest = { commands: Record<string, { endpoints?: string[]; examples?: string[] }> }

/** From the manifest of the command line, which a build makes; without one there are no examples of commands. */
export async function commandExamples(): Promise<CommandExamples> {
  const examples = new Map<string, string>()
  // A checkout that was not built has none.
  const text = await readFile(packageFile('oclif.manifest.json'), 'utf8').catch(() => '{"commands":{}}')
  for (const { endpoints = [], examples: of = [] } of Object.values(
    (JSON.parse(text) as Manifest).commands,
  )) {
    const lines = of.flatMap((one) => one.split('\n')).filter((one) => /^\S*( \| )?svc /.test(one))
    const dry = lines.find((line) => line.includes('--dry-run'))
    for (const [at, route] of endpoints.entries()) {
      // What a change also reads, a dry run of it reads alone.
      const line = (at > 0 && route.startsWith('GET ') && dry) || lines[0]
      if (line !== undefined && !examples.has(route)) examples.set(route, line)
    }
  }
  return examples
}

/** A call of an endpoint with curl, with what it requires and the body of its example. */
export function curlOf(entry: Endpoint): string {
  const { method, access, body, form } = entry
  const address = `"$SVC_URL/api/v1${pathOf(entry)}${queryOf(entry)}"`
  const sent = body && !form ? JSON.stringify(exampleOf(entry)).replaceAll("'", String.raw`'\''`) : undefined
  const lines = [
    `curl ${method === 'GET' ? '' : `-X ${method} `}${address}`,
    ...(access.who === 'public' ? [] : ['-H "Authorization: Bearer $TOKEN"']),
    ...(sent === undefined ? [] : ["-H 'Content-Type: application/json'", `-d '${sent}'`]),
    ...(form ? [`--data-urlencode 'FIELD=VALUE'`] : []),
  ]
  return lines.join(' \\\n  ')
}

const pathOf = ({ path }: Endpoint): string =>
  path.replace(/(?<=.)\/$/, '').replaceAll(/:(\w+)/g, (_, name: string) => sampleOf(name))

function queryOf({ query }: Endpoint): string {
  if (!query) return ''
  const { required = [], properties = {} } = toJsonSchema(query, 'input') as {
    required?: string[]
    properties?: Record<string, { enum?: unknown[]; default?: unknown }>
  }
  const pairs = required
    .filter((name) => properties[name]?.default === undefined)
    .map((name) => `${name}=${properties[name]?.enum?.[0] ?? sampleOf(name)}`)
  return pairs.length === 0 ? '' : `?${pairs.join('&')}`
}

const sampleOf = (name: string): string => (/id$/i.test(name) ? someId : name.toUpperCase())
