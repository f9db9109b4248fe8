import type { ReplyOf } from '../core/endpoint.ts'
import type { auth, users } from '../identity/contract.ts'
import { askSecret, readSecret } from './ask.ts'
import type { CommandContext } from './base.ts'
import { chooseStore } from './choose-credential-store.ts'
import { usageError } from './exit-codes.ts'
import { completeLogin, type LoginFlags, readCredentials, warnIfUnencrypted } from './login.ts'
import { askNewPassword } from './password.ts'
import { printNote } from './print.ts'
import { escapeToOneLine } from './table.ts'

type Sent = Pick<ReplyOf<typeof users.invite>, 'inviteEmailSent' | 'inviteUrl'>

/** The result of an invitation: the mail, or the link to hand over. */
export function formatInvited(reply: Record<string, unknown>): string {
  const { inviteEmailSent, inviteUrl } = reply as Sent
  const { email, status } = reply as { email?: string; status?: string }
  if (inviteUrl !== undefined) {
    const invited = email === undefined ? '' : `${escapeToOneLine(email)} is invited. `
    return `${invited}There is no mail server, so send this link:\n${escapeToOneLine(inviteUrl)}\n`
  }
  const sent = inviteEmailSent
    ? 'A mail was sent'
    : 'No mail server is configured: svc dev outbox --latest shows the mail'
  if (email === undefined) return `${sent}\n`
  const how = status === undefined || status === 'invited' ? 'is invited' : 'has an account and was added'
  return `${escapeToOneLine(email)} ${how}. ${sent}\n`
}

/** Accepts the invitation of a partner or organization, by id or name, with the account that is signed in. */
export async function acceptOwnInvitation(
  run: CommandContext,
  entries: Pick<typeof users, 'myInvitations' | 'acceptMine'>,
  name: string,
) {
  const { data } = await run.client.call(entries.myInvitations)
  const isNamed = ({ orgId, partnerId, name: called }: (typeof data)[number]) =>
    [orgId, partnerId].includes(name) || called.toLowerCase() === name.toLowerCase()
  const found = data.filter(isNamed)
  const [one] = found
  if (!one)
    throw usageError(`There is no invitation of ${name} for you`, 'svc invite list shows your invitations')
  if (found.length > 1) throw usageError(`Several are called ${name}`, 'Give the id: svc invite list')
  const body = one.orgId === null ? { partnerId: one.partnerId! } : { orgId: one.orgId }
  await run.client.call(entries.acceptMine, { body })
  return { ...one, accepted: true }
}

type AcceptFlags = Pick<LoginFlags, 'password' | 'password-stdin' | 'store'> & { token?: string | undefined }

/** Accepts an invitation, stores the session and reports where. */
export async function acceptInvitation(
  run: CommandContext,
  entry: typeof auth.acceptInvite,
  flags: AcceptFlags,
) {
  const token = await linkToken(run, flags.token)
  const isGiven = flags.password !== undefined || flags['password-stdin'] === true
  const password =
    run.interactive && !isGiven ? await askNewPassword() : (await readCredentials(run, flags)).password
  warnIfUnencrypted(run.settings.url.value)
  const store = await chooseStore(run.settings, flags.store, run.interactive)
  const reply = await run.anonymous.call(entry, { body: { token, password } })
  if (reply.tokens) return completeLogin(run, store, reply)
  printNote(reply.message ?? 'Sign in: svc login')
  return { url: run.settings.url.value, context: null, user: reply.user }
}

/** The token, also from a complete link. */
async function linkToken(run: CommandContext, flag: string | undefined): Promise<string> {
  if (flag === undefined && !run.interactive)
    throw usageError('Missing --invitation', '--invitation @file, or - for standard input')
  const given = flag === undefined ? await askSecret('Link or token') : await readSecret(flag, '--invitation')
  return URL.parse(given.trim())?.searchParams.get('token') ?? given.trim()
}
