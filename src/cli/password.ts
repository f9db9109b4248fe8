import { auth } from '../identity/contract.ts'
import { askSecret, readSecret, readStdin } from './ask.ts'
import type { CommandContext } from './base.ts'
import { usageError } from './exit-codes.ts'
import { printNote } from './print.ts'
import { clearSession } from './session.ts'

type Flags = Record<string, unknown>

/** Two secrets, of which both may come from standard input, a line each. */
async function twoSecrets(
  run: CommandContext,
  flags: Flags,
  first: { flag: string; question: string },
  second: string,
): Promise<[string, string]> {
  if (flags[first.flag] === '-' && flags[second] === '-') {
    const [a = '', b = ''] = (await readStdin(`two lines: --${first.flag}, then --${second}`)).split(/\r?\n/)
    return [a, b]
  }
  const one = await secretOr(run, flags, first.flag, () => askSecret(first.question))
  const two = await secretOr(run, flags, second, askNewPassword)
  return [one, two]
}

async function secretOr(
  run: CommandContext,
  flags: Flags,
  flag: string,
  ask: () => Promise<string>,
): Promise<string> {
  const given = flags[flag] as string | undefined
  if (given !== undefined) return readSecret(given, `--${flag}`)
  if (!run.interactive) throw usageError(`Missing --${flag}`, `--${flag} - reads standard input`)
  return ask()
}

/** Prompts twice: a typo would lock the owner out. */
export async function askNewPassword(): Promise<string> {
  for (;;) {
    const password = await askSecret('New password')
    if (password === (await askSecret('New password once more'))) return password
    printNote('They differ. Once again.')
  }
}

export async function changePassword(run: CommandContext, flags: Flags) {
  const current = { flag: 'current-password', question: 'Current password' }
  const [currentPassword, wanted] = await twoSecrets(run, flags, current, 'new-password')
  const body = { currentPassword, newPassword: wanted }
  const reply = await run.client.call(auth.changePassword, { body })
  await clearSession(run)
  printNote('Every session was revoked, including this one. Next: svc login')
  return reply
}

export async function resetPassword(run: CommandContext, flags: Flags) {
  const mail = { flag: 'link', question: 'Link or token of the mail' }
  const [link, password] = await twoSecrets(run, flags, mail, 'password')
  return run.anonymous.call(auth.resetPassword, { body: { token: tokenFromLink(link), password } })
}

/** The token of a link, or the token itself. */
function tokenFromLink(link: string): string {
  const text = link.trim()
  return URL.canParse(text) ? (new URL(text).searchParams.get('token') ?? text) : text
}
