import { chmodSync, mkdirSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import xterm from '@xterm/headless'
import { generateSync } from 'otplib'
import { binary, Home, start } from './run.ts'

const columns = 80
/** More than any command of the walk prints. */
const rows = 200

export type Recorded = { command: string; screen: string }

/** What a terminal shows of the commands, typed one after another in a checkout. */
export async function recordWalk(
  commands: readonly string[],
  { url, dataDir, password }: { url: string; dataDir: string; password: string },
): Promise<Recorded[]> {
  const home = new Home({
    SVC_URL: url,
    SVC_CREDENTIAL_STORE: 'file',
    SVC_AGENT_STATE_DIR: join(dataDir, 'agent'),
  })
  try {
    mkdirSync(join(home.path, 'bin'))
    chmodSync(home.write('bin/npx', `#!/bin/sh\nshift\nexec '${process.execPath}' '${binary}' "$@"\n`), 0o700)
    const path = [join(home.path, 'bin'), dirname(process.execPath), home.env.PATH].join(delimiter)
    const env = { ...home.env, PATH: path, SVC_CONFIG_DIR: undefined, TERM: 'xterm-256color', PAGER: 'cat' }
    const recorded: Recorded[] = []
    let secret = ''
    for (const command of commands) {
      const code = () => generateSync({ secret })
      const answers: [string, string][] = [
        ...(command.includes(' login ') ? [['Password', `${password}\r`] as [string, string]] : []),
        ...(command.endsWith('mfa enable') ? [['Code of', `${code()}\r`] as [string, string]] : []),
      ]
      const line = `stty cols ${columns} rows ${rows}; ${command}`
      const { code: exit, stdout } = await start('script', ['-qefc', line, '/dev/null'], env, home.path, {
        answers,
      })
      if (exit !== 0) throw new Error(`${command} ended with ${exit}: ${stdout}`)
      secret = /Secret: +([A-Z2-7]+)/.exec(stdout)?.[1] ?? secret
      recorded.push({
        command,
        screen: await screenAfter(stdout.replaceAll(home.path, '/home/ada'), command),
      })
    }
    return recorded
  } finally {
    home.remove()
  }
}

async function screenAfter(output: string, command: string): Promise<string> {
  const terminal = new xterm.Terminal({ cols: columns, rows, allowProposedApi: true })
  await new Promise<void>((resolve) => terminal.write(`$ ${command}\r\n${output}`, resolve))
  const buffer = terminal.buffer.active
  const lines = Array.from({ length: buffer.length }, (_, n) => buffer.getLine(n)!.translateToString(true))
  terminal.dispose()
  return `${lines
    .map((line) => line.trimEnd())
    .join('\n')
    .trimEnd()}\n`
}

/**
 * A screen without white space, as a terminal breaks lines anywhere, and without what differs with the machine and the
 * moment: ids, times, numbers, secrets and names of machines.
 */
export const comparable = (screen: string): string =>
  screen
    .replaceAll(/[\s▀▄█▁]/g, '')
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<id>')
    .replaceAll(/(upto|newest\d+,)[0-9a-f]{12}/g, '$1<hex>')
    .replaceAll(/Secret:.*?&issuer/g, '<secret>')
    .replaceAll(/([A-Z0-9]{4}-[A-Z0-9]{4}){10}/g, '<codes>')
    .replaceAll(/(LASTSEENATID).*?(Notshown).*?tags/g, '$1<devices>$2')
    .replaceAll(/(device\.create).*?(success)/g, '$1<hostname>$2')
    .replaceAll(/\d+[smhd]ago|now/g, '<age>')
    .replaceAll(/127\.0\.0\.1(.)\d+/g, '127.0.0.1$1<port>')
    .replaceAll(/\*+/g, '*')
    .replaceAll(/\d+/g, '0')
