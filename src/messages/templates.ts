import type { Instant } from '../core/time.ts'
import { compose } from './compose.ts'
import type { MailMessage } from './ports.ts'

type To = { to: string; name: string }

export function invitation(
  a: To & { inviter: string; tenant: string; url: string; days: number },
): MailMessage {
  return compose('invitation', a, `${a.inviter} invites you to ${a.tenant}`, [
    `${a.inviter} has invited you to work with ${a.tenant}. Choose a password to accept:`,
    { label: 'Accept the invitation', url: a.url },
    `The link works once, for ${count(a.days, 'day')}. In a terminal, svc invite accept prompts for it.`,
    'If you do not know what this is about, you can ignore this message: nothing changes unless you accept.',
  ])
}

/** `proof`: link to reset the password, for an account whose address was never verified. */
export function addedToTenant(
  a: To & { inviter: string; tenant: string; url: string; proof?: string },
): MailMessage {
  const proof =
    a.proof === undefined
      ? []
      : [
          'Before that, choose a new password: it proves that this address is yours, and revokes the access that ' +
            'others may have to an account in its name.',
          { label: 'Choose a new password', url: a.proof },
        ]
  return compose('membership', a, `${a.inviter} invites you to ${a.tenant}`, [
    `${a.inviter} has invited your account to work with ${a.tenant}. Sign in as you always do, and accept it ` +
      'under your invitations (in a terminal: svc invite list):',
    { label: 'Sign in', url: a.url },
    ...proof,
    'Your password and your other memberships stay as they are. If you do not know what this is about, ' +
      'you can ignore this message.',
  ])
}

export function passwordReset(a: To & { url: string; minutes: number }): MailMessage {
  return compose('password-reset', a, 'Reset your password', [
    'Someone, most likely you, asked to reset the password of your account. Choose a new one:',
    { label: 'Choose a new password', url: a.url },
    `The link works once, for ${count(a.minutes, 'minute')}. In a terminal, svc password reset prompts for it.`,
    'If it was not you, you can ignore this message: your password stays as it is.',
  ])
}

export function passwordChanged(a: To & { at: Instant }): MailMessage {
  return compose('password-changed', a, 'Your password was changed', [
    `The password of your account was changed on ${dated(a.at)}. You were signed out everywhere else.`,
    'If it was not you, reset your password immediately and tell your administrator.',
  ])
}

export function signInStopped(a: To & { url: string; network: string; minutes: number }): MailMessage {
  return compose('sign-in-stopped', a, 'Wrong passwords for your account', [
    `There were too many wrong passwords for your account from the network ${a.network}, so nobody can sign in to it ` +
      `from there for ${count(a.minutes, 'minute')}. From everywhere else it works as always.`,
    'If it was not you, someone may be guessing your password. If you have forgotten it, choose a new one:',
    { label: 'Reset your password', url: a.url },
  ])
}

export function signInGuarded(a: To & { url: string; minutes: number }): MailMessage {
  return compose('sign-in-guarded', a, 'Someone is guessing your password', [
    `There were very many wrong passwords for your account within ${count(a.minutes, 'minute')}. While this goes on, ` +
      'the password alone opens it only where you signed in before and did not sign out.',
    'To sign in anywhere else, choose a new password first, and sign in from the same place:',
    { label: 'Choose a new password', url: a.url },
  ])
}

export function welcome(a: To & { url: string }): MailMessage {
  return compose('welcome', a, 'Your account is ready', [
    'Your account is ready. Sign in with this e-mail address and the password you chose:',
    { label: 'Sign in', url: a.url },
    'Set up a second factor when you do: then a password alone does not open your account.',
  ])
}

export function verifyEmail(a: To & { url: string; hours: number }): MailMessage {
  return compose('verify-email', a, 'Confirm your e-mail address', [
    'Someone, we hope you, registered with this e-mail address. Confirm it to open the account:',
    { label: 'Confirm the address', url: a.url },
    `The link works for ${count(a.hours, 'hour')}. If it was not you, do nothing: no account is created.`,
  ])
}

export function alreadyRegistered(a: To & { url: string }): MailMessage {
  return compose('already-registered', a, 'You already have an account', [
    'Someone, perhaps you, tried to register with this e-mail address. It already has an account:',
    { label: 'Sign in', url: a.url },
    'If it was not you, there is nothing to do: nothing was changed.',
  ])
}

/** `what` is a sentence, such as "An authenticator app was added". */
export function factorsChanged(a: To & { what: string; at: Instant }): MailMessage {
  return compose('factors-changed', a, 'How you sign in has changed', [
    `${a.what.replace(/\.$/, '')}, on ${dated(a.at)}.`,
    'If it was not you, change your password immediately and tell your administrator.',
  ])
}

const count = (n: number, unit: string): string => `${n} ${unit}${n === 1 ? '' : 's'}`

let calendar: Intl.DateTimeFormat | undefined

/** `1 March 2026 at 12:00 UTC`. */
function dated(at: Instant): string {
  // Created on first use: it takes a megabyte.
  calendar ??= new Intl.DateTimeFormat('en-GB', { dateStyle: 'long', timeStyle: 'short', timeZone: 'UTC' })
  return `${calendar.format(new Date(at))} UTC`
}
