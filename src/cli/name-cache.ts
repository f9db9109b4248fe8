import { hash } from 'node:crypto'
import { readdirSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDir, writePrivateFile } from './files.ts'
import type { Settings } from './settings.ts'

/** At most this many answers are kept; the oldest go. */
const maxFiles = 200

const namesDir = (): string => join(cacheDir(), 'names')

/** Whose names they are, without the secret that proves it; undefined without a sign-in. */
export function callerOf({ active }: Settings, apiKey: string | undefined): string | undefined {
  const secret = process.env.SVC_TOKEN || apiKey
  if (secret) return hash('sha256', secret, 'hex')
  const context = active?.context
  return context?.store && context.identity ? JSON.stringify([active?.name, context.identity]) : undefined
}

/** The file of what a service answered a caller. */
export const fileOfNames = (settings: Settings, caller: string, ...question: (string | null)[]): string =>
  join(
    namesDir(),
    `${hash('sha256', JSON.stringify([settings.url.value, caller, ...question]), 'hex').slice(0, 32)}.json`,
  )

export function keepNames(file: string, names: unknown): void {
  writePrivateFile(file, JSON.stringify(names))
  const all = readdirSync(namesDir()).map((name) => join(namesDir(), name))
  if (all.length <= maxFiles) return
  const byAge = all.map((path) => ({ path, at: statSync(path).mtimeMs })).sort((a, b) => a.at - b.at)
  for (const { path } of byAge.slice(0, all.length - maxFiles)) rmSync(path, { force: true })
}

/** Whoever signs out leaves no names, and an id that is no longer that of its name is looked up again. */
export const forgetNames = (): void => rmSync(namesDir(), { recursive: true, force: true })
