import { execFileSync } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../databases.ts'

/** Which version `version-before.tar.gz` is; make.js packs another one. */
export const about = JSON.parse(readFileSync(new URL('./version-before.json', import.meta.url), 'utf8')) as {
  version: string
  commit: string
  dependencies: Record<string, string>
}

let unpacked: Promise<string> | undefined

/** The program of the version before, with the packages of this one. */
export function programBefore(): Promise<string> {
  unpacked ??= unpack()
  return unpacked
}

async function unpack(): Promise<string> {
  const folder = await temporaryFolder()
  const archive = fileURLToPath(new URL('./version-before.tar.gz', import.meta.url))
  execFileSync('tar', ['-xzf', archive, '-C', folder])
  symlinkSync(fileURLToPath(new URL('../../node_modules', import.meta.url)), join(folder, 'node_modules'))
  return join(folder, 'bin', 'svc.js')
}
