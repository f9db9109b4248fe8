/** What the groups of commands are for, in the list of `svc --help`. */
export const topicDescriptions: Record<string, string> = {
  agent: 'The reference agent on this machine, and which version of it machines are offered',
  'agent:rollout': 'New versions of the agent, wave by wave',
  'agent:versions': 'Versions of the agent that are registered',
  alerts: 'What needs someone to look after it',
  audit: 'Read, export and verify the audit log',
  'audit:hold': 'Keep an audit log whole while somebody needs it',
  'audit:retention': 'How long audit entries are kept',
  auth: 'Who is signed in',
  config: 'Where settings come from',
  context: 'Services, and who is signed in there',
  db: 'Look after the database of this machine',
  'dead-letters': 'What the service could not write where it belongs',
  dev: 'For those who try the service out',
  devices: 'Managed machines',
  enroll: 'Enrollment keys, with which machines join',
  events: 'What happens in other systems, raised for webhooks',
  groups: 'Device groups: put together by hand or found by a filter',
  filters: 'Saved questions about devices, and which devices match',
  invite: 'Accept an invitation',
  keys: 'API keys, with which programs call the service',
  logs: 'What agents say of themselves, and what devices wrote down',
  'logs:live': 'Ask a device for its logs while you wait',
  mfa: 'Second factors: set up, remove, recovery codes',
  orgs: 'Organizations',
  partners: 'Partners',
  password: 'Change a password, or set a new one',
  profile: 'Your own name and picture',
  roles: 'Roles, and what they let people do',
  scripts: 'What can be run on devices',
  sites: 'Sites of organizations',
  sso: 'Single sign-on: the identity providers of an organization',
  trust: 'CI without stored secrets: which of its jobs may sign in',
  users: 'People: invitations, roles and reach',
  webhooks: 'Events sent on to other systems',
}

/** Pages of `svc help` that are about no single command. */
export const helpPages: Record<string, string> = {
  'exit-codes': `EXIT CODES
  0    it worked
  1    it failed, or the answer is no: can-i, explain; audit verify found tampering, webhooks verify a wrong signature;
       agent rollout status --exit-code, of a rollout that was halted, aborted or rolled back
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
  SVC_OIDC_TOKEN        token that svc login --oidc gitlab signs in with
  SVC_CONTEXT           context to use
  SVC_ORG               default organization: id, slug or name
  SVC_CONFIG_DIR        where contexts are kept (XDG_CONFIG_HOME/svc, ~/.config/svc)
  SVC_CREDENTIAL_STORE  keychain, file or none
  SVC_TIMEOUT           how long to wait for an answer: 30, 30s, 500ms, 2m
  SVC_CA_FILE           certificates to trust besides the usual ones, PEM
  SVC_NO_INPUT, CI      never ask
  BROWSER               program that opens addresses, %s for the address; without it as the system does, and over SSH
                        or without a display not at all
  SVC_DEBUG             show requests on standard error, without secrets
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY   never used for a service on this machine
  NO_COLOR, FORCE_COLOR, TERM=dumb    colour

  svc agent. Beside SVC_URL, SVC_CA_FILE, SVC_NO_INPUT and the proxies

  SVC_ENROLLMENT_KEY    key that a machine enrolls with, once
  SVC_AGENT_STATE_DIR   where the agent keeps its identity (/var/lib/svc-agent for root, else ~/.local/state/svc-agent)

  svc serve. Secrets also as NAME_FILE, the name of a file that holds them. All limits: man svc-serve

  HOST, PORT            where it listens (127.0.0.1, 3000)
  SVC_DATA_DIR          the SQLite database, generated secrets, the outbox (./data)
  DATABASE_URL          postgres://… instead of SQLite
  DATABASE_POOL_SIZE, DATABASE_STATEMENT_TIMEOUT_MS, DATABASE_WAIT_SECONDS   connections of one process (10), what one
                        statement may take (30000), how long a database that refuses is waited for at the start (30)
  DATABASE_INTEGRITY_CHECK_SECONDS   how often everything that is stored is checked for damage; 86400; 0: never
  QUESTIONS_AT_ONCE, QUESTIONS_PER_TENANT, QUESTIONS_PER_CALLER   filters, searches and long lists that run at once: of all
                        (6), of one tenant (4), of one user, key or workload (2)
  AUTO_MIGRATE          false: start only when svc db migrate was run
  LOG_LEVEL             info; debug, warn, error, silent
  SVC_ADMIN_EMAIL, SVC_ADMIN_PASSWORD   the first administrator
  JWT_SECRET, APP_ENCRYPTION_KEY, ENROLLMENT_KEY_PEPPER, MFA_RECOVERY_CODE_PEPPER
                        secrets; needed in production, else generated once. Each is 32 random bytes, as
                        openssl rand -base64 32 prints them: in production others are refused
  JWT_SECRET_PREVIOUS, APP_ENCRYPTION_KEY_PREVIOUS, ENROLLMENT_KEY_PEPPER_PREVIOUS, MFA_RECOVERY_CODE_PEPPER_PREVIOUS
                                the key before or the next one, while keys are changed
  AUDIT_SIGNING_KEY     signs the audit log: 32 bytes in base64; without it, made from APP_ENCRYPTION_KEY
  AUDIT_SIGNING_KEY_PREVIOUS    the key before, so that what it signed goes on to verify
  ACCEPT_NEW_KEYS       goes on with other keys than before, as the refusal to start says; man svc-serve
  AUDIT_CHECKPOINT_SECONDS      how often audit chains that grew are signed; 3600
  METRICS_TOKEN         bearer token for /metrics, 32 random bytes, in the format of Prometheus; off without one
  PUBLIC_URL            where people find the service, for links in mail and single sign-on (PUBLIC_APP_URL, DASHBOARD_URL)
  CORS_ALLOWED_ORIGINS  front-ends that are served from elsewhere, with commas between them: https://app.example.com; off: none.
                        The origins of DASHBOARD_URL and PUBLIC_APP_URL unless told
  SAML_SP_ENTITY_ID     what identity providers of SAML call the service (the address of its metadata)
  RELEASE_API_URL       where releases of the agent are: https://api.github.com/repos/OWNER/NAME, or another that speaks so
  RELEASE_API_TOKEN     for a repository that is private, or asked often
  RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS   who is believed about releases: Ed25519 public keys, in base64 or PEM, with
                        commas between them; svc agent sign-release prints one
  BINARY_SOURCE         release-host: agents fetch files there; local: from the service, or object storage
  AGENT_BINARY_DIR      local: a folder for each version, with its files and its manifest
  AGENT_BINARY_S3_BUCKET   local: object storage that agents are sent to; with AGENT_BINARY_S3_PREFIX, _REGION, _ENDPOINT,
                        _ACCESS_KEY_ID and _SECRET_ACCESS_KEY as for AUDIT_ARCHIVE_S3_BUCKET
  SMTP_URL, MAIL_FROM   smtp://user:password@host:587 or smtps://, and svc <noreply@example.com>;
                        without them mail goes to svc dev outbox only
  SMTP_HOST, SMTP_PORT, SMTP_USER, SMTP_PASSWORD, SMTP_SECURE   instead of SMTP_URL
  SMTP_STARTTLS         off: send in the clear; required by default, but not of a server on this machine
  SMTP_CA_FILE          certificates to trust besides the usual ones, PEM
  TWILIO_ACCOUNT_SID, TWILIO_AUTH_TOKEN, TWILIO_VERIFY_SERVICE_SID   codes by SMS
  ENABLE_2FA            false: no second factors
  ENABLE_REGISTRATION   true: people and partners may register themselves; set up mail first
  OFFLINE_AFTER_SECONDS  after how long without a heartbeat a device is offline; 300
  AGENT_TOKEN_ROTATION_MAX_AGE_DAYS   how old the token of an agent may be before it asks for another; 30, at most 365
  AGENT_ENROLLMENT_SECRET   what machines have to know besides an enrollment key, 32 random bytes; nothing without it
  AGENT_LOG_RETENTION_DAYS, EVENT_LOG_RETENTION_DAYS   how long logs of agents and of devices are kept; 7, 30
  LOG_BYTES_PER_DEVICE, LOG_BYTES_PER_ORG   how many bytes of logs are kept; 268435456 (256 MiB), 34359738368 (32 GiB)
  COMMAND_RESULT_BYTES_PER_DEVICE, COMMAND_RESULT_BYTES_PER_ORG   how many bytes of what came of commands are kept;
                        67108864 (64 MiB), 4294967296 (4 GiB)
  LIVE_QUERY_TIMEOUT_MS  how long the agent of a device has to answer a live query; 30000
  WEBHOOK_TIMEOUT_MS   how long the receiver of a webhook has to answer; 30000
  WEBHOOK_DELIVERY_RETENTION_DAYS  how long deliveries are kept after their end; 30
  AUDIT_RETENTION_ENABLED   false: old audit entries go only by svc audit prune
  AUDIT_ARCHIVE_S3_BUCKET   where audit entries are archived before they are deleted, in S3-compatible storage; with
                        AUDIT_ARCHIVE_S3_PREFIX, _REGION, _ENDPOINT (not that of AWS), _ACCESS_KEY_ID and
                        _SECRET_ACCESS_KEY (without them as the AWS SDK finds its own)
  OUTBOUND_ALLOW_CIDRS  ranges that are not public and may be reached, also without TLS: 10.0.0.0/8
  OUTBOUND_CA_FILE      certificates to trust besides the usual ones, PEM
  RATE_LIMIT_<NAME>     <count>/<seconds>, or off
  RATE_LIMIT_AGENT_AUDIT, _EVENTS, _CHANGES   entries of the audit log and events that a device causes, beyond which one
                        tells of many (60/3600 each), and changes of its tokens and update (60/3600)
  RATE_LIMIT_WRONG_PASSWORDS_NETWORK, _ACCOUNT   wrong passwords that stop an account from one network for as long (5/900),
                        and those of all networks after which strangers need more than the password (50/3600)
  TRUST_PROXY_HEADERS, TRUSTED_PROXY_CIDRS, TRUST_CF_CONNECTING_IP   behind a proxy
`,
  filters: `FILTERS
  A filter says which devices are meant: conditions joined by and, or and brackets; and binds tighter than or.

    status = online and hardware.cpuCores >= 8
    (tags has any (prod, web) or hostname contains sql) and lastSeenAt within 7 days

  A condition is a field, an operator and mostly a value. svc filters fields lists the fields.

  = != > >= < <=               a value; for dates as well
  contains, not contains, starts with, ends with   text, letter case aside
  matches or ~                 a regular expression (RE2), found anywhere in the text
  in (a, b), not in (a, b)     one of these
  has any (a, b), has all (a, b), is empty, is not empty   lists, such as tags
  is null, is not null         whether the device has said anything about it
  before, after                a date, such as 2026-01-31 or 2026-01-31T12:00:00Z
  between A and B              both included
  within 7 days, not within 2 weeks   minutes, hours, days, weeks, months back from now

  A value is a word, or text in quotes: "to do" or 'to do'. Within quotes a backslash stands before a quote or another
  backslash, \\n and \\t are a new line and a tab, and any other backslash is itself: hostname ~ "^web\\d+$"
  Numbers, true and false are what the field wants them to be; in quotes they are always text.

  Meaning. = in, has any and has all are exact, letter case included. A pattern is at most 250 characters. Dates without a
  time are midnight UTC; months are those of the calendar: from 31 March one is back to 28 February.
  What is not known satisfies "is null" and nothing else, so != does not find it. Of several values (tags, network.*,
  software.installed) any may satisfy a condition; !=, not contains and not in mean that there are some and none of them
  does. software.notInstalled also finds a device that reported no software. Nothing is in an empty list; everything
  known is not in it. A filter is at most 10 levels deep and has at most 200 conditions and groups.

  As JSON, for --file and the API:
    {"operator":"AND","conditions":[
      {"field":"osType","operator":"equals","value":"windows"},
      {"field":"lastSeenAt","operator":"notWithinLast","value":{"amount":7,"unit":"days"}},
      {"operator":"OR","conditions":[
        {"field":"tags","operator":"hasAny","value":["kiosk","till"]},
        {"field":"hostname","operator":"matches","value":"^pos-[0-9]+$"}]}]}

  svc filters preview --where 'status = offline and lastSeenAt not within 30 days'
  svc filters create --name Stale --where 'lastSeenAt not within 30 days' --org blue-bakery
  svc filters explain --where 'osType = windows or tags is empty'
  svc filters show Stale --json --jq .conditions | svc filters create --name Copy --file -
`,
  formatting: `FORMATTING
  Data goes to standard output, everything else to standard error. At a terminal lists are tables cut to its
  width, with … for the columns that have no room; in a pipe they are aligned plain text, whole and without colour.
  A terminal is shown every control character, and what reorders or hides text, as \\u009b; data in files and
  pipes has the bytes.

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
