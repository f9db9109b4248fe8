import { mkdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type Home, start } from '../cli/run.ts'
import { files } from './command-lines.ts'

const child = fileURLToPath(new URL('./run-lines-child.js', import.meta.url))

/** A command line, and the service that it calls. `columns`: the line without flags, whose columns are all shown. */
type Line = { argv: string[]; url: string; columns?: string[] }
type Written = { code: number | 'late' | 'none'; text: string }

/**
 * Runs command lines one after another in one process, signed in to `signedInTo`: a start for each would take minutes. Returns
 * what each wrote, and all of it as a terminal of 100 columns received it. @throws when the process fails
 */
export async function runLines<L extends Line>(
  home: Home,
  runs: readonly L[],
  on: { signedInTo: string; longest: number; terminal?: boolean },
): Promise<{ seen: (L & Written)[]; screen: string }> {
  for (const [name, text] of Object.entries(files)) home.write(name, text)
  home.signIn(on.signedInTo)
  const config = { fresh: home.config, used: `${home.path}/used` }
  mkdirSync(config.used)
  const to = `${home.path}/seen.json`
  const file = home.write('runs.json', JSON.stringify({ runs, to, config }))
  const env = { ...home.env, SVC_TOKEN: 'token', SVC_NO_INPUT: '1', SVC_TIMEOUT: '2s' }
  const line = `stty cols 100 rows 40; exec '${process.execPath}' '${child}' '${file}'`
  const { code, stdout, stderr } = on.terminal
    ? await start('script', ['-qefc', line, '/dev/null'], { ...env, TERM: 'xterm-256color' }, home.path, on)
    : await start(process.execPath, [child, file], env, home.path, on)
  if (code !== 0) throw new Error(`The command lines ended with ${code}: ${stderr}`)
  return { seen: JSON.parse(readFileSync(to, 'utf8')) as (L & Written)[], screen: stdout }
}
