import { statSync } from 'node:fs'
import { z } from 'zod'
import { usageError } from '../../cli/exit-codes.ts'
import { readFileIfExists, writePrivateFile } from '../../cli/files.ts'
import { parseJson } from '../../core/json.ts'
import { safeParse } from '../../core/schema.ts'
import { newSimulatedAgent, type SimulatedAgent } from './fleet.ts'

const FleetFile = z.object({
  url: z.url(),
  seed: z.int(),
  platform: z.string(),
  agents: z.array(z.tuple([z.int().min(1), z.string().min(1), z.string().min(1), z.string().min(1)])),
})

/**
 * A fleet as stored in its file: the service it is enrolled at, the parameters of its machines, and each agent with
 * its token.
 */
export type SavedFleet = { url: string; seed: number; platform: string; agents: SimulatedAgent[] }

/** The fleet of an earlier run, or undefined before the first. @throws a usage error for an invalid file */
export function loadFleet(file: string): SavedFleet | undefined {
  const text = readFileIfExists(file)
  if (text === undefined) return undefined
  if (process.platform !== 'win32' && (statSync(file).mode & 0o077) !== 0) {
    throw usageError(`${file} contains credentials and is readable by others; run: chmod 600 ${file}`)
  }
  const { data } = safeParse(FleetFile, parseJson(text))
  if (!data) {
    throw usageError(`${file} is not a fleet of svc agent simulate`, 'remove it, or use another --state')
  }
  const { agents, ...about } = data
  return { ...about, agents: agents.map((one) => newSimulatedAgent(...one)) }
}

/** Replaces the file atomically, readable only by its owner. */
export function saveFleet(file: string, { agents, ...about }: SavedFleet): void {
  const rows = agents.map(({ n, id, token, version }) => [n, id, token, version])
  writePrivateFile(file, `${JSON.stringify({ ...about, agents: rows })}\n`)
}
