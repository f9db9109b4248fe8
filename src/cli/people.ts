import type { ReplyOf } from '../core/endpoint.ts'
import type { auth, users } from '../identity/contract.ts'
import { askSecret, secretFrom } from './ask.ts'
import type { Session as Run } from './base.ts'
import { chooseStore } from './choose-store.ts'
import { usage } from './exit.ts'
import { type LoginFlags, secretsOf, settle, warnIfOpen } from './login.ts'
import { newPassword } from './password.ts'
import { say } from './print.ts'
import { escapeToOneLine } from './table.ts'

type Sent = Pick<ReplyOf<typeof users.invite>, 'inviteEmailSent' | 'inviteUrl'>

/** What became of an invitation: the mail, or the link to hand over. */
export function invited(reply: Record<string, unknown>): string {
  const { inviteEmailSent, inviteUrl } = reply as Sent
  const { email, status } = reply as { email?: string; status?: string }
  const who = email === undefined ? 'The invitation' : escapeToOneLine(email)
  if (inviteUrl !== undefined) {
    return `${who} is invited. No mail server is configured: hand this link over yourself.\n${escapeToOneLine(inviteUrl)}\n`
  }
  const sent = inviteEmailSent
    ? 'A mail is on its way'
    : 'No mail server is configured: svc dev outbox --latest shows the mail'
  if (email === undefined) return `${sent}\n`
  const how = status === undefined || status === 'invited' ? 'is invited' : 'has an account and was added'
  return `${who} ${how}. ${sent}\n`
}

/** Accepts the invitation of a partner or organization, by id or name, with the account that is signed in. */
export async function acceptMine(
  run: Run,
  entries: Pick<typeof users, 'myInvitations' | 'acceptMine'>,
  name: string,
) {
  const { data } = await run.client.call(entries.myInvitations)
  const isNamed = ({ orgId, partnerId, name: called }: (typeof data)[number]) =>
    [orgId, partnerId].includes(name) || called.toLowerCase() === name.toLowerCase()
  const found = data.filter(isNamed)
  const [one] = found
  if (!one) throw usage(`No invitation of ${name} waits for you`, 'svc invite list shows those that do')
  if (found.length > 1) throw usage(`Several are called ${name}`, 'Give the id: svc invite list')
  const body = one.orgId === null ? { partnerId: one.partnerId! } : { orgId: one.orgId }
  await run.client.call(entries.acceptMine, { body })
  return { ...one, accepted: true }
}

type AcceptFlags = Pick<LoginFlags, 'password' | 'password-stdin' | 'store'> & { token?: string | undefined }

/** Accepts an invitation, keeps the session and says where. */
export async function acceptInvitation(run: Run, entry: typeof auth.acceptInvite, flags: AcceptFlags) {
  const token = await linkToken(run, flags.token)
  const isGiven = flags.password !== undefined || flags['password-stdin'] === true
  const password = run.attended && !isGiven ? await newPassword() : (await secretsOf(run, flags)).password
  warnIfOpen(run.settings.url.value)
  const store = await chooseStore(run.settings, flags.store, run.attended)
  const reply = await run.stranger.call(entry, { body: { token, password } })
  if (reply.tokens) return settle(run, store, reply)
  say(reply.message ?? 'Sign in: svc login')
  return { url: run.settings.url.value, context: null, user: reply.user }
}

/** The token, also when the whole link was pasted. */
async function linkToken(run: Run, flag: string | undefined): Promise<string> {
  if (flag === undefined && !run.attended)
    throw usage('Missing --invitation', '--invitation @file, or - for standard input')
  const given = flag === undefined ? await askSecret('Link or token') : await secretFrom(flag, '--invitation')
  return URL.parse(given.trim())?.searchParams.get('token') ?? given.trim()
}
