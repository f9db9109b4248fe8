import type { FastifyInstance, FastifyReply } from 'fastify'
import { errors, type Problem } from '../src/core/errors.ts'
import { isId } from '../src/core/ids.ts'
import { escapeHtml, failureBody, type WebPage, webPage, withCommands } from '../src/core/web-page.ts'
import { type FailureCode, failures } from '../src/sso/failures.ts'
import {
  acceptScript,
  deviceScript,
  forgotScript,
  resetScript,
  signInScript,
  verifyScript,
} from './page-scripts.ts'

/*
 * The web pages of the service: the end of a sign-in at an identity provider, and the targets of links in mail.
 * A dashboard has these pages itself, and then these are not used. Texts come from here and
 * never from the address, which an attacker could use to display text in the name of the service.
 */

type Query = Record<string, unknown>

export function addPages(app: FastifyInstance, publicUrl: () => string): void {
  app.get('/login', async ({ query }, reply) => sendPage(reply, signInPage(query as Query, publicUrl())))
  // Browsers request it on every page.
  app.get('/favicon.ico', async (_, reply) =>
    reply.header('cache-control', 'public, max-age=86400').code(204).send(),
  )
  const letter = (pageAt: (url: string) => WebPage) => {
    let page: WebPage | undefined
    return async (_: unknown, reply: FastifyReply) => {
      page ??= pageAt(publicUrl())
      return sendPage(reply, page)
    }
  }
  app.get('/accept-invite', letter(acceptInvite))
  app.get('/reset-password', letter(resetPassword))
  app.get('/forgot-password', letter(forgotPassword))
  app.get('/verify-email', letter(verifyEmail))
  app.get('/device', letter(approveTerminal))
}

export const sendPage = (reply: FastifyReply, { html, headers }: WebPage): FastifyReply =>
  reply.headers(headers).send(html)

function signInPage({ error, orgId, ssoTest }: Query, url: string): WebPage {
  if (ssoTest !== undefined) return trialPage(ssoTest === 'passed')
  if (error !== undefined) return failurePage(String(error), orgId)
  return webPage({ title: 'Sign in', body: signIn(url) + views(url), script: signInScript })
}

/** The page of a failure; an unknown code is a general failure. */
function failurePage(error: string, orgId: unknown): WebPage {
  const code = (Object.hasOwn(failures, error) ? error : 'sso_error') as FailureCode
  const title = 'You are not signed in'
  const again = isId(String(orgId)) ? `<a class="button" href="/api/v1/sso/login/${orgId}">Try again</a>` : ''
  return webPage({ title, body: failureBody({ title, ...failures[code], code, more: again }) })
}

function trialPage(passed: boolean): WebPage {
  const title = 'The trial is over'
  const came = passed ? 'The sign-in worked.' : 'The sign-in did not work.'
  const body = `<h1>${title}</h1>
<p role="status">${came} Nobody was signed in: it was a trial.</p>
<p>Return to your terminal: it shows every step.</p>`
  return webPage({ title, body })
}

/** The page of a failed request, for a person. */
export function problemPage({ code, message, extras }: Problem, requestId: string): WebPage {
  const { details, retryAfter } = extras
  // Faults may repeat input.
  const isFaulty = details !== undefined
  const hint = isFaulty ? 'Begin again.' : problemHints[code]
  const title = 'That did not work'
  const body = failureBody({
    title,
    code,
    message: isFaulty ? errors[code].title : message,
    hint: retryAfter === undefined ? hint : `Try again in ${retryAfter} s.`,
    more: `<p class="faint">Request: <code>${escapeHtml(requestId)}</code></p>`,
  })
  return webPage({ title, body })
}

const problemHints: { [code in Problem['code']]?: string } = {
  not_found: failures.provider_not_found.hint,
  invalid_request:
    'Ask an administrator to look at the provider: svc sso show PROVIDER, svc sso test PROVIDER.',
  sso_not_configured: 'Ask whoever runs the service to set it.',
  unavailable: 'Try again in a minute.',
}

const signIn = (url: string): string => `<h1>Sign in</h1>
<p>This is a service for managing devices. It has no dashboard: people work with it in a terminal, programs with its <a href="/docs">API</a>.</p>
<h2>With e-mail and password</h2><pre><code>svc login --url ${escapeHtml(url)}</code></pre>
<h2>With the single sign-on of an organization</h2><pre><code>svc login --sso ORG --url ${escapeHtml(url)}</code></pre>
<p>ORG is the id of the organization: whoever administers it knows it.</p>
<noscript><p role="alert">To end a sign-in here, this page needs JavaScript.</p></noscript>`

const view = (id: string, html: string): string => `<template id="${id}">${html}</template>`

/** Views that the script fills in, as text. */
const views = (url: string): string =>
  [
    view('signing-in', '<h1>Signing you in</h1><p role="status">One moment.</p>'),
    view(
      'signed-in',
      `<h1>You are signed in</h1>
<p role="status">As <strong data-text="name"></strong>, <span data-text="email"></span>; organization <strong data-text="org"></strong>.</p>
<p>This service has no dashboard. Go on in a terminal, or with the <a href="/docs">API</a>:</p>
<pre><code>svc login --sso <span data-text="orgId"></span> --url ${escapeHtml(url)}</code></pre>
<p role="alert"></p>
<button class="button" type="button">Sign out</button>
<p class="faint">It ends every session you have, also those in terminals.</p>`,
    ),
    view(
      'signed-out',
      '<h1>You are signed out</h1><p role="status">Every session of yours has ended.</p><p><a href="/login">Sign in again</a></p>',
    ),
    view(
      'spent',
      failureView('This sign-in was used before, or took longer than two minutes.', 'Begin again.'),
    ),
    view('failed', failureView('', 'Begin again. If it fails again, ask whoever runs the service.')),
  ].join('')

/** Without a message the script fills it in. */
const failureView = (
  message: string,
  hint: string,
  title = 'You are not signed in',
): string => `<h1>${title}</h1>
<p role="alert"${message === '' ? ' data-text="message"' : ''}>${message}</p>
<h2>What to do</h2><p>${withCommands(hint)}</p>
<p class="faint">Code: <code data-text="code"></code></p>`

/* Targets of the links in mail (src/messages/links.ts). Tokens stay in the address. */

const noScript = '<noscript><p role="alert">This page needs JavaScript.</p></noscript>'

/** The same in a terminal. */
const orInTerminal = (command: string, link = true): string =>
  `<p class="faint">Or in a terminal: <code>${escapeHtml(command)}</code>${link ? '. Paste the address of this page when you are asked for the link.' : ''}</p>`

const field = (label: string, attributes: string): string =>
  `<label>${label}<input required ${attributes}></label>`

const passwords =
  field(
    'New password',
    'type="password" name="password" autocomplete="new-password" minlength="8" maxlength="128"',
  ) +
  field(
    'Once more',
    'type="password" name="again" autocomplete="new-password" minlength="8" maxlength="128"',
  ) +
  '<p class="faint">8 to 128 characters, not easily guessed.</p>'

/** A form that its script sends. */
const form = (fields: string, button: string, hidden = ''): string =>
  `<form${hidden}>${fields}<p role="alert"></p><button class="button">${button}</button></form>`

function acceptInvite(url: string): WebPage {
  const title = 'You are invited'
  const body = `<h1>${title}</h1>
<p>With a link from an invitation you choose your password here.</p>${noScript}`
  const terminal = orInTerminal(`svc invite accept --url ${url}`)
  const invited = `<h1>${title}</h1>
<p>To <strong data-text="tenant"></strong>, as <strong data-text="name"></strong>, <span data-text="email"></span>.</p>
${form(passwords, 'Accept')}
<p>If your organization has single sign-on you need no password: <code>svc login --sso ORG</code>.</p>`
  const accepted = `<h1>Your account is ready</h1>
<p role="status">You can sign in as <strong data-text="email"></strong> with your new password.</p>
<p>People work with this service in a terminal:</p>
<pre><code>svc login --url ${escapeHtml(url)}</code></pre>`
  const failed = failureView(
    '',
    'Ask whoever invited you to send the invitation again.',
    'You are not invited',
  )
  const views = view('invited', invited + terminal) + view('accepted', accepted) + view('failed', failed)
  return webPage({ title, body: body + terminal + views, script: acceptScript })
}

function resetPassword(url: string): WebPage {
  const title = 'Set a new password'
  const body = `<h1>${title}</h1>
<p>The link is good once. Every session you have ends with it.</p>
${noScript}${form(passwords, 'Set the password', ' hidden')}${orInTerminal(`svc password reset --url ${url}`)}`
  const done = `<h1>Your password is set</h1><p role="status" data-text="message"></p>
<pre><code>svc login --url ${escapeHtml(url)}</code></pre>`
  return webPage({ title, body: body + view('done', done), script: resetScript })
}

function forgotPassword(url: string): WebPage {
  const title = 'Ask for a link'
  const email = field('E-mail', 'type="email" name="email" autocomplete="email" maxlength="255"')
  const body = `<h1>${title}</h1>
<p>With it you set a new password. It comes by mail.</p>
${noScript}${form(email, 'Send the link', ' hidden')}${orInTerminal(`svc password forgot EMAIL --url ${url}`, false)}`
  const done = '<h1>Look into your mail</h1><p role="status" data-text="message"></p>'
  return webPage({ title, body: body + view('done', done), script: forgotScript })
}

function verifyEmail(): WebPage {
  const title = 'Confirm your address'
  const body = `<h1>${title}</h1>
<p>Press the button, and the address this link was sent to counts as yours.</p>
<button class="button" type="button" hidden>Confirm</button>
${noScript}`
  const done = '<h1>Your address is confirmed</h1><p role="status" data-text="message"></p>'
  const failed = failureView('', 'Register again to be sent another link.', 'Your address is not confirmed')
  return webPage({
    title,
    body: body + view('verified', done) + view('failed', failed),
    script: verifyScript,
  })
}

/** Where a person approves the sign-in of a terminal (`svc login --device`). */
function approveTerminal(url: string): WebPage {
  const title = 'Sign in a terminal'
  const warning = `<p>Go on only if you started <code>svc login --device --url ${escapeHtml(url)}</code> yourself: the terminal gets to act as you.</p>`
  const signIn = `<h1>${title}</h1>${warning}
${form(
  field('E-mail', 'type="email" name="email" autocomplete="username" maxlength="255"') +
    field('Password', 'type="password" name="password" autocomplete="current-password" maxlength="1024"'),
  'Sign in',
)}
<h2>With the single sign-on of an organization</h2>
${form(field('Id of the organization', 'name="orgId" autocomplete="off" maxlength="36"'), 'Continue')}`
  const factor = `<h1>Your code</h1><p data-text="from"></p>
${form(field('Code, or a recovery code', 'name="code" autocomplete="one-time-code" maxlength="20"'), 'Continue')}`
  const code = `<h1>${title}</h1>${warning}
<p>You are <strong data-text="name"></strong>, <span data-text="email"></span>.</p>
${form(field('Code that the terminal shows', 'name="userCode" autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="32" placeholder="WDJB-MJHT"'), 'Continue')}`
  const asked = `<h1>Is this yours?</h1>
<p>A terminal asks to sign in as you: <strong data-text="client"></strong>, from <strong data-text="ip"></strong>, <span data-text="when"></span>. Nobody has checked its name.</p>
<button class="button" type="button">Approve</button> <button class="button" type="button">Deny</button>`
  const approved = `<h1>The terminal is signed in</h1><p role="status">Return to it. You can close this page.</p>`
  const denied = `<h1>Denied</h1><p role="status">The terminal is not signed in. If somebody sent you the code, tell whoever runs the service.</p>`
  const failed = failureView('', 'Begin again: svc login --device', 'The terminal is not signed in')
  const views = [
    view('sign-in', signIn),
    view('factor', factor),
    view('code', code),
    view('asked', asked),
    view('approved', approved),
    view('denied', denied),
    view('failed', failed),
  ]
  return webPage({ title, body: `<h1>${title}</h1>${noScript}${views.join('')}`, script: deviceScript })
}
