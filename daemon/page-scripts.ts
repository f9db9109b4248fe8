/*
 * Scripts in the pages of the service. Nothing is stored: the access token is in memory alone, the refresh token in a
 * cookie that no script can read. Whatever comes from outside is set as text, never as HTML.
 */

const shared = `
const main = document.querySelector('main')
const views = new Map([...document.querySelectorAll('template')].map(({ id, content }) => [id, content]))
const show = (name, texts = {}) => {
  const view = views.get(name).cloneNode(true)
  for (const at of view.querySelectorAll('[data-text]')) at.textContent = texts[at.dataset.text] ?? ''
  main.replaceChildren(view)
  const heading = main.querySelector('h1')
  document.title = heading.textContent + ' · svc'
  heading.tabIndex = -1
  heading.focus()
}
const call = async (method, path, { body, headers = {} } = {}) => {
  const json = body === undefined ? {} : { 'content-type': 'application/json' }
  const text = body === undefined ? undefined : JSON.stringify(body)
  const reply = await fetch('/api/v1' + path, { method, body: text, headers: { ...headers, ...json }, cache: 'no-store' })
  const data = await reply.json()
  const { error, code, details } = data
  if (!reply.ok) throw Object.assign(new Error(error), { code, details, status: reply.status })
  return data
}
const faultOf = (failure) => failure.code === undefined
  ? { message: 'The service could not be reached.', code: 'unreachable' }
  : { message: failure.message.replace(/\\.$/, '') + '.', code: failure.code }
`

/** Of a link in mail. */
const linkToken = `
const token = new URLSearchParams(location.search).get('token')
`

/** Sends what a form holds when its button is pressed, and shows what came of it. */
const forms = `
const alertOf = (form) => form.querySelector('[role=alert]')
const onSubmit = (form, send, done) => form.addEventListener('submit', (event) => {
  event.preventDefault()
  const fields = Object.fromEntries(new FormData(form))
  const differ = fields.again !== undefined && fields.again !== fields.password
  alertOf(form).textContent = differ ? 'The two passwords differ.' : ''
  if (differ) return
  const button = form.querySelector('button')
  button.disabled = true
  send(fields).then(done).catch((failure) => {
    button.disabled = false
    const faults = (failure.details ?? []).map(({ message }) => ' ' + message + '.')
    alertOf(form).textContent = faultOf(failure).message + faults.join('')
  })
})
`

/** The session of a page, where a sign-in at an identity provider ends with a code. */
const session = `
const fragment = new URLSearchParams(location.hash.slice(1))
const code = fragment.get('ssoCode')
// The code is valid once and for two minutes, and must not stay in the history.
if (code !== null) history.replaceState(null, '', location.pathname)
let token
const bearer = () => ({ authorization: 'Bearer ' + token })
const exchange = async (headers) => {
  const body = { code, sameBrowser: true }
  token = (await call('POST', '/sso/exchange', { body, headers })).accessToken
}
`

/** For /login: completes a sign-in with its code, or continues the session of this browser. */
export const signInScript = `(() => {${shared}${session}
const csrf = () => /(?:^|; )service_csrf_token=([0-9a-f]+)/.exec(document.cookie)?.[1]
const renew = async () => {
  const renewed = await call('POST', '/auth/refresh', { body: {}, headers: { 'x-service-csrf': csrf() ?? '' } })
  token = renewed.tokens.accessToken
}
const signedIn = async () => {
  const { user, orgId, memberships } = await call('GET', '/auth/me', { headers: bearer() })
  const name = memberships.find(({ id }) => id === orgId)?.name ?? orgId
  show('signed-in', { name: user.name, email: user.email, org: name ?? 'none', orgId: orgId ?? 'ORG' })
  main.querySelector('button').addEventListener('click', signOut)
}
const signOut = async ({ currentTarget: button }) => {
  button.disabled = true
  const end = () => call('POST', '/auth/logout', { headers: bearer() })
  try {
    // The access token lasts minutes: it is renewed when somebody returns to this page later.
    await end().catch(async (failure) => {
      if (failure.status !== 401) throw failure
      await renew()
      await end()
    })
  } catch (failure) {
    if (failure.status !== 401) {
      button.disabled = false
      main.querySelector('[role=alert]').textContent = faultOf(failure).message + ' You are still signed in: try again.'
      return
    }
  }
  show('signed-out')
}
if (code !== null) {
  show('signing-in')
  exchange()
    .then(signedIn)
    .catch((failure) => show(failure.code === 'invalid_exchange_code' ? 'spent' : 'failed', faultOf(failure)))
} else if (csrf() !== undefined) {
  // Without a session the page goes on showing how to sign in.
  renew().then(signedIn).catch(() => {})
}
})()`

/** For /verify-email: nothing happens before the button is pressed, since mail filters open links as well. */
export const verifyScript = `(() => {${shared}${linkToken}
const button = main.querySelector('button')
if (token) button.hidden = false
button.addEventListener('click', () => {
  button.disabled = true
  call('POST', '/auth/verify-email', { body: { token } })
    .then(({ message }) => show('verified', { message }))
    .catch((failure) => show('failed', faultOf(failure)))
})
})()`

/** For /accept-invite: says what the invitation is to, and takes the first password. */
export const acceptScript = `(() => {${shared}${forms}${linkToken}
const open = (invitation) => {
  const { name, email } = invitation
  show('invited', { name, email, tenant: invitation.orgName ?? invitation.partnerName })
  onSubmit(main.querySelector('form'), async ({ password }) => {
    const { tokens } = await call('POST', '/auth/accept-invite', { body: { token, password } })
    // People work in a terminal: no session stays in a browser that may not be theirs.
    const headers = { authorization: 'Bearer ' + tokens?.accessToken }
    // One that cannot be ended now expires, and its token is forgotten with this page.
    await call('POST', '/auth/logout', { headers }).catch(() => {})
    return { email }
  }, (data) => show('accepted', data))
}
if (token) call('POST', '/auth/invite/preview', { body: { token } })
  .then(open)
  .catch((failure) => show('failed', faultOf(failure)))
})()`

/** For /reset-password and /forgot-password. */
export const resetScript = `(() => {${shared}${forms}${linkToken}
const form = main.querySelector('form')
form.hidden = !token
onSubmit(form, ({ password }) => call('POST', '/auth/reset-password', { body: { token, password } }), (data) => show('done', data))
})()`

export const forgotScript = `(() => {${shared}${forms}
const form = main.querySelector('form')
form.hidden = false
onSubmit(form, ({ email }) => call('POST', '/auth/forgot-password', { body: { email } }), (data) => show('done', data))
})()`

/**
 * For /device: signs a person in, shows which terminal asks, and lets them approve or deny it. The session begins and ends
 * here, because an approval needs a recent sign-in. It has no cookies: a page that is left open signs nobody in, and another
 * session of this browser goes on.
 */
export const deviceScript = `(() => {${shared}${forms}${session}
const noCookies = { 'x-service-client': 'cli' }
const form = (name, texts) => {
  show(name, texts)
  return main.querySelector('form')
}
// One that cannot be ended now expires, and its token is forgotten with this page.
const end = () => call('POST', '/auth/logout', { body: { everywhere: false }, headers: { ...bearer(), ...noCookies } }).catch(() => {})
const decide = (userCode, decision) => ({ currentTarget: button }) => {
  button.disabled = true
  call('POST', '/auth/device/decision', { body: { userCode, decision }, headers: bearer() })
    .finally(end)
    .then(() => show(decision === 'approve' ? 'approved' : 'denied'), (failure) => show('failed', faultOf(failure)))
}
const ask = (userCode, { client, ip, createdAt }) => {
  const minutes = Math.floor((Date.now() - Date.parse(createdAt)) / 60000)
  show('asked', { client, ip, when: minutes < 1 ? 'less than a minute ago' : minutes + ' min ago' })
  const [approve, deny] = main.querySelectorAll('button')
  approve.addEventListener('click', decide(userCode, 'approve'))
  deny.addEventListener('click', decide(userCode, 'deny'))
}
const enter = async () => {
  const { user } = await call('GET', '/auth/me', { headers: bearer() })
  onSubmit(form('code', { name: user.name, email: user.email }), async ({ userCode }) => [
    userCode, await call('POST', '/auth/device/preview', { body: { userCode }, headers: bearer() }),
  ], (asked) => ask(...asked))
}
const withTokens = ({ tokens }) => {
  token = tokens.accessToken
  return enter()
}
const factor = async ({ tempToken, mfaMethod }) => {
  const bySms = mfaMethod === 'sms'
  if (bySms) await call('POST', '/auth/mfa/sms/send', { body: { tempToken } })
  onSubmit(form('factor', { from: bySms ? 'It was sent to your phone.' : 'Your authenticator shows it.' }),
    ({ code }) => call('POST', '/auth/mfa/verify', { body: { tempToken, code: code.trim() }, headers: noCookies }), withTokens)
}
const begin = () => {
  onSubmit(form('sign-in'), ({ email, password }) => call('POST', '/auth/login', { body: { email, password }, headers: noCookies }),
    (reply) => reply.mfaRequired ? factor(reply) : withTokens(reply))
  const [, sso] = main.querySelectorAll('form')
  sso.addEventListener('submit', (event) => {
    event.preventDefault()
    const { orgId } = Object.fromEntries(new FormData(sso))
    location.assign('/api/v1/sso/login/' + encodeURIComponent(orgId.trim()) + '?redirect=/device')
  })
}
if (code !== null) exchange(noCookies).then(enter).catch((failure) => show('failed', faultOf(failure)))
else begin()
})()`
