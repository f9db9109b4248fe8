import { spawn } from 'node:child_process'
import { CliError } from './exit-codes.ts'
import { printNote } from './print.ts'

/** Whether `openBrowser` would try. */
export const hasBrowser = (env: NodeJS.ProcessEnv = process.env): boolean => commandFor('', env) !== undefined

/**
 * Opens an address in a browser of this machine, if a person can see it: not over SSH, not without
 * a display, unless BROWSER names a program that knows what to do.
 * @returns whether it was tried
 */
export function openBrowser(address: string, env: NodeJS.ProcessEnv = process.env): boolean {
  // The address may come from a reply of the service: open no file and no other program.
  if (!/^https?:\/\//.test(address)) {
    throw new CliError('The service returned an address that is not a web page', { code: 'bad_address' })
  }
  const command = commandFor(address, env)
  if (!command) return false
  const [program = '', ...args] = command
  // Without a shell, nothing in the address can be a command.
  const child = spawn(program, args, { stdio: 'ignore', detached: true })
  const failed = () => printNote('No browser could be opened: open the address yourself')
  child.on('error', failed)
  child.on('exit', (code) => void (code !== 0 && code !== null && failed()))
  child.unref()
  return true
}

function commandFor(address: string, env: NodeJS.ProcessEnv): string[] | undefined {
  if (env.BROWSER) {
    const words = env.BROWSER.trim().split(/\s+/)
    return words.includes('%s') ? words.map((word) => (word === '%s' ? address : word)) : [...words, address]
  }
  if (env.SSH_CONNECTION) return undefined
  if (process.platform === 'darwin') return ['open', address]
  if (process.platform === 'win32') return ['rundll32', 'url.dll,FileProtocolHandler', address]
  return env.DISPLAY || env.WAYLAND_DISPLAY ? ['xdg-open', address] : undefined
}
