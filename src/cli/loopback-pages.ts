import { failureBody, type WebPage, webPage } from '../core/web-page.ts'
import { type FailureCode, failures } from '../sso/failures.ts'

/*
 * The pages that this program serves to a browser. Only codes from the address are used, never texts.
 */

/** Describes an error code of the service; an unknown one is a general failure. */
export function describeFailure(error: string): { code: string; message: string; hint: string } {
  const known = Object.hasOwn(failures, error) ? failures[error as FailureCode] : undefined
  if (known) return { code: error, ...known }
  return { code: /^[a-z_]{1,64}$/.test(error) ? error : 'sso_error', ...failures.sso_error }
}

export function failurePage(failure: { code: string; message: string; hint?: string | undefined }): WebPage {
  const title = 'You are not signed in'
  const more = '<p>Return to your terminal: it has the same message.</p>'
  const { code, message, hint } = failure
  return webPage({ title, body: failureBody({ title, message, hint, code, more }) })
}

export const trialPage = (passed: boolean): WebPage => {
  const title = 'The trial is over'
  const came = passed ? 'The sign-in worked.' : 'The sign-in did not work.'
  return webPage({
    title,
    body: `<h1>${title}</h1>
<p role="status">${came} Nobody was signed in: it was a trial.</p>
<p>Return to your terminal: it shows every step. You can close this page.</p>`,
  })
}

/** The code is after the `#`, which browsers do not send: a script has to post it. */
export const callbackPage = (): WebPage =>
  webPage({
    title: 'Signing you in',
    body: `<h1 tabindex="-1">Signing you in</h1>
<p role="status">One moment.</p>
<noscript><p role="alert">This page needs JavaScript. Without it, start svc with --no-browser at a terminal, and paste the address of this page there.</p></noscript>`,
    script: `(() => {
const code = new URLSearchParams(location.hash.slice(1)).get('ssoCode')
history.replaceState(null, '', location.pathname)
const [main, heading, status] = ['main', 'h1', '[role=status]'].map((at) => document.querySelector(at))
const tell = (title, text, failed) => {
  document.title = title + ' · svc'
  heading.textContent = title
  status.textContent = text
  if (failed) status.setAttribute('role', 'alert')
  heading.focus()
}
const failed = (text) => tell('You are not signed in', text, true)
if (code === null) failed('The address has no code. Return to your terminal, and start again.')
else fetch(location.pathname, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ code }) })
  .then(async (reply) => {
    if (reply.ok) return tell('You are signed in', 'Return to your terminal. You can close this page.')
    failed((await reply.json()).error + '. Return to your terminal for details.')
  })
  // The listener has ended, or did not answer with JSON: the terminal says why.
  .catch(() => failed('svc no longer waits. Return to your terminal, and start again.'))
})()`,
  })
