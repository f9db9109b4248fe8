import { spawn } from 'node:child_process'

export type Block = {
  page: string
  script: string
  language: string
  /** Why the block is not run. */
  notRun?: string
  /** The only database that it is for. */
  on?: string
  needs?: string
  /** The environment in which it is run. */
  job?: string
  /** Exit codes that it may have. */
  exits: number[]
}

/** The fenced blocks of a page. What follows the language, such as `on=postgres`, no reader sees. */
export function blocksIn(page: string, text: string): Block[] {
  return [...text.matchAll(/^```(\w*)([^\n]*)\n([\s\S]*?)^```$/gm)].map(([, language, marks, script]) => {
    const said = Object.fromEntries(
      marks!
        .trim()
        .split(' ')
        .filter((mark) => mark !== '')
        .map((mark) => mark.split('=') as [string, string]),
    )
    const { 'not-run': notRun, on, needs, job, exits = '0', ...unknown } = said
    if (Object.keys(unknown).length > 0) throw new Error(`${page}: unknown mark ${Object.keys(unknown)}`)
    return {
      page,
      script: script!,
      language: language!,
      exits: exits.split(',').map(Number),
      ...(notRun !== undefined && { notRun }),
      ...(on !== undefined && { on }),
      ...(needs !== undefined && { needs }),
      ...(job !== undefined && { job }),
    }
  })
}

/** Runs a script with bash, which stops at the first command that fails. */
export function runScript(
  script: string,
  env: Record<string, string>,
  cwd: string,
  longest = 60_000,
): Promise<{ code: number | null; output: string }> {
  const shell = spawn('bash', ['-euo', 'pipefail', '-c', script], {
    env,
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: longest,
  })
  let output = ''
  for (const stream of [shell.stdout, shell.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
  return new Promise((resolve) => shell.on('close', (code) => resolve({ code, output })))
}
