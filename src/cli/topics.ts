/** What the groups of commands are for, in the list of `svc --help`. */
export const groups: Record<string, string> = {
  agent: 'Run the reference agent on this machine',
  audit: 'Read, export and verify the audit log',
  auth: 'Who is signed in',
  config: 'Where settings come from',
  context: 'Services, and who is signed in there',
  db: 'Look after the database of this machine',
  dev: 'For those who try the service out',
  devices: 'Managed machines',
  enroll: 'Enrollment keys, with which machines join',
  invite: 'Accept an invitation',
  keys: 'API keys, with which programs call the service',
  mfa: 'Second factors: set up, remove, recovery codes',
  orgs: 'Organizations',
  partners: 'Partners',
  password: 'Change a password, or set a new one',
  profile: 'Your own name and picture',
  roles: 'Roles, and what they let people do',
  sites: 'Sites of organizations',
  users: 'People: invitations, roles and reach',
}

/** Pages of `svc help` that are about no single command. */
export const pages: Record<string, string> = {
  'exit-codes': `EXIT CODES
  0    it worked
  1    it failed, or the answer is no: can-i, explain; audit verify found tampering
  2    the command line or the input is wrong; a confirmation is missing
  3    not found
  4    sign-in required, or the sign-in was refused
  5    not allowed, or a second factor is needed
  6    conflict: it exists already
  7    rate limited
  8    the service cannot be reached or is unavailable
  9    verification impossible: unreadable, empty or cut off
  124  no answer in time
  130  interrupted with Ctrl-C

  With --json every failure also prints one line on standard error, and nothing on standard output:
  {"error":{"code":"not_found","message":"Not found","status":404,"requestId":"0197…","hint":null}}
`,
  environment: `ENVIRONMENT
  A flag wins over the environment, that over the context, that over the default: svc config explain URL

  SVC_URL               address of the service (http://127.0.0.1:3000)
  SVC_TOKEN             access token to use instead of the stored session
  SVC_API_KEY           API key to use instead of the stored session, where no token is given
  SVC_CONTEXT           context to use
  SVC_ORG               default organization: id, slug or name
  SVC_CONFIG_DIR        where contexts are kept (XDG_CONFIG_HOME/svc, ~/.config/svc)
  SVC_CREDENTIAL_STORE  keychain, file or none
  SVC_TIMEOUT           how long to wait for an answer: 30, 30s, 500ms, 2m
  SVC_CA_FILE           certificates to trust besides the usual ones, PEM
  SVC_NO_INPUT, CI      never ask
  SVC_DEBUG             show requests on standard error, without secrets
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY   never used for a service on this machine
  NO_COLOR, FORCE_COLOR, TERM=dumb    colour

  svc serve. Secrets also as NAME_FILE, the name of a file that holds them.

  HOST, PORT            where it listens (127.0.0.1, 3000)
  SVC_DATA_DIR          the SQLite database, generated secrets, the outbox (./data)
  DATABASE_URL          postgres://… instead of SQLite
  AUTO_MIGRATE          false: start only when svc db migrate was run
  LOG_LEVEL             info; debug, warn, error, silent
  SVC_ADMIN_EMAIL, SVC_ADMIN_PASSWORD   the first administrator
  JWT_SECRET, APP_ENCRYPTION_KEY, ENROLLMENT_KEY_PEPPER, MFA_RECOVERY_CODE_PEPPER
                        secrets; needed in production, else generated once
  APP_ENCRYPTION_KEY_PREVIOUS   the key before, after a change of APP_ENCRYPTION_KEY
  PUBLIC_URL            where people find the service, for links in mail (PUBLIC_APP_URL, DASHBOARD_URL)
  SMTP_URL, MAIL_FROM   smtp://user:password@host:587 or smtps://, and svc <noreply@example.com>;
                        without them mail goes to svc dev outbox only
  SMTP_HOST, SMTP_PORT, SMTP_USER, SMTP_PASSWORD, SMTP_SECURE   instead of SMTP_URL
  SMTP_STARTTLS         off: send in the clear; required by default, but not of a server on this machine
  SMTP_CA_FILE          certificates to trust besides the usual ones, PEM
  TWILIO_ACCOUNT_SID, TWILIO_AUTH_TOKEN, TWILIO_VERIFY_SERVICE_SID   codes by SMS
  ENABLE_2FA            false: no second factors
  ENABLE_REGISTRATION   true: people and partners may register themselves; set up mail first
  RATE_LIMIT_<NAME>     <count>/<seconds>, or off
  TRUST_PROXY_HEADERS, TRUSTED_PROXY_CIDRS, TRUST_CF_CONNECTING_IP   behind a proxy
`,
  filters: `FILTERS
  A filter is a group: an operator, AND or OR, and conditions or further groups, 10 levels deep and 200 in all.
  A condition is a field, an operator and mostly a value. Fields, their operators and words: GET /filters/fields

    {"operator":"AND","conditions":[
      {"field":"osType","operator":"equals","value":"windows"},
      {"field":"lastSeenAt","operator":"notWithinLast","value":{"amount":7,"unit":"days"}},
      {"operator":"OR","conditions":[
        {"field":"tags","operator":"hasAny","value":["kiosk","till"]},
        {"field":"hostname","operator":"matches","value":"^pos-[0-9]+$"}]}]}

  equals, in, hasAny, hasAll               exact, letter case included
  contains, startsWith, endsWith           letter case aside; % _ * and the like are plain characters
  matches                                  RE2 pattern of at most 250 characters, anywhere in the text
  between                                  {"from":…,"to":…}, both ends included
  withinLast, notWithinLast                {"amount":…,"unit":"minutes|hours|days|weeks|months"} back from now;
                                           months are those of the calendar: from 31 March one is back to 28 February
  dates                                    2026-01-31 (midnight UTC) or 2026-01-31T12:00:00+01:00

  What is not known satisfies isNull and nothing else, so notEquals does not find it.
  Of several values (tags, network.*, software.installed) any may satisfy a condition; notEquals, notContains and notIn
  mean that there are some and none of them does. software.notInstalled also finds a device that reported no software.
  In an empty list is nothing; everything known is notIn it.
`,
  formatting: `FORMATTING
  Data goes to standard output, everything else to standard error. At a terminal lists are tables cut to its
  width; in a pipe they are aligned plain text, whole and without colour.

  --json, -o json   as the API answers, one document; with --all every row is in it
  -o ndjson         a JSON document per line, page by page; for long lists
  -o yaml           the same document as YAML
  --csv, -o csv     every field, RFC 4180 quoting; nested fields are columns such as user.email
  -o table          a table also for single records
  -q, -o id         ids only
  --jq EXPR         what this jq program makes of the JSON, strings as they are
  --columns a,b     only these, in this order, in any format
  --no-header       without the line of column names

  Lists: --limit N rows, --page N, --all.

  svc orgs --csv --no-header --columns slug,name
  svc devices --all -o ndjson > devices.ndjson
  svc enroll -q --expired | while read -r id; do svc enroll delete "$id" --yes; done
`,
}
