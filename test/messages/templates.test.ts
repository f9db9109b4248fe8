import { describe, expect, it } from 'vitest'
import { inviteLink, resetLink } from '../../src/messages/links.ts'
import type { MailMessage } from '../../src/messages/ports.ts'
import * as templates from '../../src/messages/templates.ts'

const base = { to: 'alice@acme.test', name: 'Alice' }
const url = 'https://svc.example.com/go?token=a&b=c'
const at = '2026-03-01T12:00:00.000Z'

/** One mail of each template: the compiler asks for those that are missing. */
const everyMail: Record<keyof typeof templates, MailMessage> = {
  invitation: templates.invitation({ ...base, inviter: 'Bob', tenant: 'Acme', url, days: 7 }),
  addedToTenant: templates.addedToTenant({ ...base, inviter: 'Bob', tenant: 'Acme', url }),
  passwordReset: templates.passwordReset({ ...base, url, minutes: 60 }),
  passwordChanged: templates.passwordChanged({ ...base, at }),
  signInStopped: templates.signInStopped({ ...base, url, network: '203.0.113.0/24', minutes: 15 }),
  signInGuarded: templates.signInGuarded({ ...base, url, minutes: 60 }),
  welcome: templates.welcome({ ...base, url }),
  verifyEmail: templates.verifyEmail({ ...base, url, hours: 24 }),
  alreadyRegistered: templates.alreadyRegistered({ ...base, url }),
  factorsChanged: templates.factorsChanged({ ...base, what: 'An authenticator app was added.', at }),
}

/** The visible text of the HTML. */
const words = (html: string): string =>
  html
    .replace(/<[^>]+>/g, ' ')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ')
    .trim()

describe.each(Object.entries(everyMail))('the mail %s', (_, mail) => {
  it('names its kind, its recipient and its subject', () => {
    expect(mail).toMatchObject({ to: 'alice@acme.test', kind: expect.stringMatching(/^[a-z]+(-[a-z]+)*$/) })
    expect(mail.subject).toMatch(/^[A-Z][^\n]{5,70}$/)
    expect(mail.text).toMatch(/^Hello Alice,\n\n/)
  })

  it('has the same content in HTML', () => {
    const plain = mail.text.replace(/\s+/g, ' ').replaceAll(':', '').trim()
    expect(words(mail.html).replaceAll(':', '')).toBe(plain)
  })

  it('lists the links of its text', () => {
    expect(mail.links).toEqual(mail.text.match(/https:\S+/g) ?? [])
    for (const link of mail.links) expect(mail.html).toContain(`href="${link.replaceAll('&', '&amp;')}"`)
  })
})

it('each mail has a kind of its own', () => {
  const kinds = Object.values(everyMail).map(({ kind }) => kind)
  expect(new Set(kinds).size).toBe(kinds.length)
})

it('mails format times for people, and use singular and plural', () => {
  expect(everyMail.passwordChanged.text).toContain('on 1 March 2026 at 12:00 UTC.')
  expect(everyMail.factorsChanged.text).toContain('An authenticator app was added, on 1 March 2026')
  expect(everyMail.invitation.text).toContain('for 7 days.')
  expect(templates.invitation({ ...base, inviter: 'B', tenant: 'A', url, days: 1 }).text).toContain(
    'for 1 day.',
  )
})

it('a name is plain text in a mail: no markup, no lines or headers, no bidirectional controls', () => {
  const evil = '<b>Mallory</b>\r\nBcc: all@acme.test\u202e\n\nhello'
  const { subject, text, html } = templates.invitation({
    ...base,
    name: '',
    inviter: evil,
    tenant: '"A" & B',
    url,
    days: 7,
  })
  expect(subject).toBe('<b>Mallory</b> Bcc: all@acme.test hello invites you to "A" & B')
  expect(text).toMatch(/^Hello,\n\n<b>Mallory<\/b> Bcc: all@acme.test hello has invited you/)
  expect(html).toContain('&lt;b&gt;Mallory&lt;/b&gt; Bcc: all@acme.test hello has invited')
  expect(html).not.toContain('<b>')
})

it('links contain their token below the public URL, whatever its path', () => {
  expect(resetLink('https://svc.example.com', 'a+b/c')).toBe(
    'https://svc.example.com/reset-password?token=a%2Bb%2Fc',
  )
  expect(inviteLink('https://example.com/svc/', 'abc')).toBe(
    'https://example.com/svc/accept-invite?token=abc',
  )
})
