import { spawn } from 'node:child_process'
import { textForTerminal } from '../core/terminal.ts'
import { writeStdout } from './stdout.ts'

/** As git starts less: it ends by itself when all fits, shows colors, and leaves the text on the screen. */
const defaults = { LESS: 'FRX', LV: '-c' }

const isSecretName = /TOKEN|SECRET|KEY|PASSWORD|PEPPER|DATABASE_URL|SMTP/

/** The pager that was chosen, as git and gh choose it; undefined for none. */
function chosenPager({ SVC_PAGER, PAGER }: NodeJS.ProcessEnv): string | undefined {
  // Windows has none, and its shell does not say so by the exit code.
  const usual = process.platform === 'win32' ? '' : 'less'
  const pager = (SVC_PAGER ?? PAGER ?? usual).trim()
  return pager === '' || pager === 'cat' ? undefined : pager
}

/** Whether a person sees the text, and it is longer than the terminal. */
function isLong(text: string): boolean {
  const { isTTY, rows } = process.stdout
  const { SVC_NO_INPUT, CI, TERM } = process.env
  // A pager waits for a key.
  const isAllowed = !SVC_NO_INPUT && !CI && TERM !== 'dumb' && !process.argv.includes('--no-input')
  const isAttended = isAllowed && process.stdin.isTTY
  return isTTY === true && isAttended === true && rows !== undefined && text.split('\n').length > rows
}

/** Prints a text for people, in a pager where it is longer than the terminal. A pager that cannot be started is none. */
export async function writePaged(text: string): Promise<void> {
  const pager = isLong(text) ? chosenPager(process.env) : undefined
  if (pager === undefined || !(await showIn(pager, textForTerminal(text)))) await writeStdout(text)
}

/** Whether the pager has shown the text. It ends when its person does. */
function showIn(pager: string, text: string): Promise<boolean> {
  // Ctrl-C is for the pager: it stops a search there.
  const before = process.listeners('SIGINT')
  const ignore = () => {}
  process.removeAllListeners('SIGINT')
  process.on('SIGINT', ignore)
  // A pager starts shells and filters, which need no secrets.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !isSecretName.test(name)))
  // It may have arguments, as in every program that has a pager.
  const child = spawn(pager, {
    shell: true,
    env: { ...defaults, ...env },
    stdio: ['pipe', 'inherit', 'inherit'],
  })
  // Whoever has seen enough quits before the end.
  child.stdin.on('error', () => {})
  child.stdin.end(text)
  return new Promise((resolve) => {
    const end = (isShown: boolean) => {
      process.off('SIGINT', ignore)
      for (const listener of before) process.on('SIGINT', listener)
      resolve(isShown)
    }
    child.on('error', () => end(false))
    // What a shell says of a program that is not there, or that may not be run.
    child.on('close', (code) => end(code !== 127 && code !== 126))
  })
}
