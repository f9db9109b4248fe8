import { negativeOperators, operatorRows } from './filter-operators.ts'

/** Pages of `svc help` about subjects other than a command. */
export const helpPages: Record<string, string> = {
  'exit-codes': `EXIT CODES
  0    success
  1    failure, or the answer is no:
         can-i, explain               it is not allowed
         audit verify                 found tampering
         webhooks verify              a wrong signature
         config diff                  something differs
         agent rollout status --exit-code
                                      halted, aborted or rolled back
         doctor                       there are warnings
         serve health                 the service is not ready
  2    the command line or the input is wrong; a confirmation is missing;
       doctor: there are errors
  3    not found
  4    sign-in required, or the sign-in was refused
  5    not allowed, or a second factor is needed
  6    conflict, such as a record that exists already
  7    rate limited, for longer than the command waits (--timeout)
  8    the service cannot be reached or is unavailable
  9    verification impossible: unreadable, empty, cut off, or signed by an
       unknown key; config diff --watch-exit: whether something differs cannot
       be said
  124  no answer in time
  130  interrupted with Ctrl-C

  Output that cannot be written, such as to a full disk, is 1; a reader that
  leaves early, as head does, is no failure: 0. A file of the command line that
  cannot be opened, or is read-only, is 2, before anything is sent; one that
  cannot be written to its end is 1. A closed standard output (>&-) is the same
  as /dev/null: 0, but a secret that is displayed only once is not sent there:
  2.

  With --json every failure also prints one line on standard error, and nothing
  on standard output:
  {"error":{"code":…,"message":…,"status":404,"requestId":…,"hint":null}}
`,
  environment: `ENVIRONMENT
  A flag overrides the environment, which overrides the context, which overrides
  the default: svc config explain url

  SVC_URL               address of the service (http://127.0.0.1:3000)
  SVC_TOKEN             access token to use instead of the stored session
  SVC_API_KEY           API key to use instead of the stored session, if no
                        token is given
  SVC_OIDC_TOKEN        token that svc login --oidc gitlab signs in with
  SVC_CONTEXT           context to use
  SVC_ORG               default organization: id, slug or name
  SVC_CONFIG_DIR        directory of the contexts (XDG_CONFIG_HOME/svc,
                        ~/.config/svc)
  SVC_CREDENTIAL_STORE  keychain, file or none
  SVC_TIMEOUT           time limit for an answer, and for waits at a rate limit:
                        30, 30s, 500ms, 2m (30s, and 2m for waits)
  SVC_CA_FILE           certificates to trust besides the usual ones, PEM
  SVC_NO_INPUT, CI      never prompt
  UPDATE_URL            asked once a day, on a terminal and not in CI, for a
                        newer version: JSON with version or tag_name. Never
                        without it
  SVC_NO_UPDATE_CHECK   do not ask it
  BROWSER               program that opens addresses, %s for the address; by
                        default that of the system, and none over SSH or without
                        a display
  SVC_PAGER, PAGER      program that shows lists and help that are longer than
                        the terminal (less, with -FRX); empty or cat: none.
                        Never in a pipe, in CI or with --no-input
  SVC_DEBUG             show requests on standard error, without secrets
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY
                        never used for a service on this machine
  NO_COLOR, FORCE_COLOR, TERM=dumb
                        colors

  svc agent: also SVC_URL, SVC_CA_FILE, SVC_NO_INPUT and the proxies

  SVC_ENROLLMENT_KEY    key for the first enrollment of a machine
  SVC_AGENT_STATE_DIR   state of the agent, with its identity
                        (/var/lib/svc-agent for root, else
                        ~/.local/state/svc-agent)

  svc serve: each secret also as NAME_FILE, the path of a file that contains it,
  or as a credential of systemd. SIGHUP reads them again. All limits: man
  svc-serve

  HOST, PORT            where it listens (127.0.0.1, 3000)
  SVC_DATA_DIR          the SQLite database, generated secrets, the outbox
                        (./data)
  DATABASE_URL          postgres://… instead of SQLite
  DATABASE_DIRECT_URL   the address of PostgreSQL itself, where DATABASE_URL
                        leads to a pooler in transaction mode
  DATABASE_POOL_SIZE, DATABASE_STATEMENT_TIMEOUT_MS, DATABASE_WAIT_SECONDS
                        connections of one process (10), time limit of one
                        statement (30000), how long the start waits for a
                        database that refuses connections (30)
  DATABASE_INTEGRITY_CHECK_SECONDS
                        interval between checks of all stored data for damage;
                        86400; 0: never
  QUESTIONS_AT_ONCE, QUESTIONS_PER_TENANT, QUESTIONS_PER_CALLER
                        filters, searches and long lists that run concurrently:
                        of all (6), of one tenant (4), of one user, key or
                        workload (2)
  AUTO_MIGRATE          false: start only after svc db migrate
  LOG_LEVEL             info; fatal, error, warn, debug, trace, silent
  SVC_ADMIN_EMAIL, SVC_ADMIN_PASSWORD
                        the first administrator
  JWT_SECRET, APP_ENCRYPTION_KEY, ENROLLMENT_KEY_PEPPER,
  MFA_RECOVERY_CODE_PEPPER, AUDIT_SIGNING_KEY
                        secrets; required in production, else generated once.
                        Each is 32 random bytes, as openssl rand -base64 32
                        prints them: in production others are refused
  JWT_SECRET_PREVIOUS, APP_ENCRYPTION_KEY_PREVIOUS,
  ENROLLMENT_KEY_PEPPER_PREVIOUS, MFA_RECOVERY_CODE_PEPPER_PREVIOUS
                        the previous key or the next one, while keys are changed
  AUDIT_SIGNING_KEY_PREVIOUS
                        the previous key, so that its signatures still verify
  ACCEPT_NEW_KEYS       accepts replaced keys; the refusal to start shows the
                        value; man svc-serve
  AUDIT_CHECKPOINT_SECONDS
                        seconds after which an audit chain that grew is signed
                        again; 3600
  METRICS_TOKEN         bearer token for /metrics (Prometheus format), 32 random
                        bytes; off without one
  PUBLIC_URL            address of the service for people, in mail and single
                        sign-on (PUBLIC_APP_URL, DASHBOARD_URL)
  CORS_ALLOWED_ORIGINS  origins of other front-ends, separated by commas:
                        https://app.example.com; off: none. By default the
                        origins of DASHBOARD_URL and PUBLIC_APP_URL
  SAML_SP_ENTITY_ID     SAML entity id of the service (the address of its
                        metadata)
  RELEASE_API_URL       releases of the agent:
                        https://api.github.com/repos/OWNER/NAME, or a compatible
                        API
  RELEASE_API_TOKEN     for a private repository, or one that is read often
  RELEASE_ARTIFACT_MANIFEST_PUBLIC_KEYS
                        keys that sign releases: Ed25519 public keys, in base64
                        or PEM, separated by commas; svc agent sign-release
                        prints one
  BINARY_SOURCE         release-host: agents fetch files there; local: from the
                        service, or object storage
  AGENT_BINARY_DIR      local: a folder for each version, with its files and its
                        manifest
  AGENT_BINARY_S3_BUCKET
                        local: object storage that agents download from; with
                        AGENT_BINARY_S3_PREFIX, _REGION, _ENDPOINT,
                        _ACCESS_KEY_ID and _SECRET_ACCESS_KEY as for
                        AUDIT_ARCHIVE_S3_BUCKET
  SMTP_URL, MAIL_FROM   smtp://user:password@host:587 or smtps://, and svc
                        <noreply@example.com>; without them mail goes to svc dev
                        outbox only
  SMTP_HOST, SMTP_PORT, SMTP_USER, SMTP_PASSWORD, SMTP_SECURE
                        instead of SMTP_URL
  SMTP_STARTTLS         off: send without encryption; required by default,
                        except for a server on this machine
  SMTP_CA_FILE          certificates to trust besides the usual ones, PEM
  TWILIO_ACCOUNT_SID, TWILIO_AUTH_TOKEN, TWILIO_VERIFY_SERVICE_SID
                        codes by SMS
  ENABLE_2FA            false: no second factors
  ENABLE_REGISTRATION   true: people and partners may register themselves; set
                        up mail first
  OFFLINE_AFTER_SECONDS
                        time without a heartbeat after which a device is
                        offline; 300
  AGENT_TOKEN_ROTATION_MAX_AGE_DAYS
                        age of an agent's token at which the service asks for a
                        rotation; 30, at most 365
  AGENT_ENROLLMENT_SECRET
                        required from machines besides an enrollment key, 32
                        random bytes; off without it
  AGENT_LOG_RETENTION_DAYS, EVENT_LOG_RETENTION_DAYS
                        retention of logs of agents and of devices; 7, 30
  LOG_BYTES_PER_DEVICE, LOG_BYTES_PER_ORG
                        bytes of stored logs; 268435456 (256 MiB), 34359738368
                        (32 GiB)
  COMMAND_RESULT_BYTES_PER_DEVICE, COMMAND_RESULT_BYTES_PER_ORG
                        bytes of stored command results; 67108864 (64 MiB),
                        4294967296 (4 GiB)
  LIVE_QUERY_TIMEOUT_MS
                        how long the agent of a device has to answer a live
                        query; 30000
  WEBHOOK_TIMEOUT_MS    how long the receiver of a webhook has to answer; 30000
  CONFIG_APPLY_RETENTION_DAYS
                        retention of the history of svc config; 365
  WEBHOOK_DELIVERY_RETENTION_DAYS
                        retention of finished deliveries; 30
  WEBHOOK_DELIVERIES_KEPT
                        newest deliveries kept of a webhook; 100000
  QUOTA_<NAME>          how many records of a kind an organization or partner
                        may have; man/svc-serve.8 lists them
  AUDIT_RETENTION_ENABLED
                        false: only svc audit prune deletes old audit entries
  AUDIT_ARCHIVE_S3_BUCKET
                        where audit entries are archived before they are
                        deleted, in S3-compatible storage; with
                        AUDIT_ARCHIVE_S3_PREFIX, _REGION, _ENDPOINT (if not
                        AWS), _ACCESS_KEY_ID and _SECRET_ACCESS_KEY (by default
                        the AWS SDK finds its own)
  BACKUP_SCHEDULE, BACKUP_TARGET
                        when (cron, in UTC) and where (a directory, or
                        s3://bucket/prefix) backups are made
  BACKUP_RECIPIENTS     public keys (age1…) to encrypt backups to, separated by
                        commas
  BACKUP_KEEP, BACKUP_KEEP_DAYS, BACKUP_LIMIT_RATE
                        newest backups that are kept (30), days after which they
                        go (0: never), bytes per second (20M)
  BACKUP_S3_ENDPOINT    for s3://, if not AWS; with _REGION, _ACCESS_KEY_ID and
                        _SECRET_ACCESS_KEY
  DRILL_SCHEDULE, DRILL_IDENTITY_FILE
                        when the newest backup is restored on trial, and what
                        opens an encrypted one
  OUTBOUND_ALLOW_CIDRS  private ranges that may be reached, also without TLS:
                        10.0.0.0/8
  OUTBOUND_CA_FILE      certificates to trust besides the usual ones, PEM
  NODE_EXTRA_CA_CERTS   certificates that svc doctor trusts besides the usual
                        ones, for a PUBLIC_URL with one of a private authority,
                        PEM; read when a process starts
  RATE_LIMIT_<NAME>     <count>/<seconds>, or off
  RATE_LIMIT_AGENT_AUDIT, _EVENTS, _CHANGES
                        audit entries and events that a device causes, beyond
                        which one stands for many (60/3600 each), and changes of
                        its tokens and update (60/3600)
  RATE_LIMIT_WRONG_PASSWORDS_NETWORK, _ACCOUNT
                        wrong passwords that block an account from one network
                        for as long (5/900), and those of all networks after
                        which unknown clients need more than the password
                        (50/3600)
  TRUST_PROXY_HEADERS, TRUSTED_PROXY_CIDRS, TRUST_CF_CONNECTING_IP
                        behind a proxy
`,
  filters: `FILTERS
  A filter selects devices: conditions joined by and, or and parentheses; and
  binds tighter than or.

    status = online and hardware.cpuCores >= 8
    (tags has any (prod, web) or hostname contains sql) and status = offline

  A condition is a field, an operator and usually a value. svc filters fields
  lists the fields.

${operatorRows()}

  A value is a word, or text in quotes: "to do" or 'to do'. Within quotes a
  backslash escapes a quote or another backslash, \\n and \\t are a new line and
  a tab, and any other backslash is literal: hostname ~ "^web\\d+$"
  Numbers, true and false have the type of the field; in quotes they are always
  text.

  Meaning. =, in, has any and has all are exact, including letter case. A
  pattern is at most 250 characters. Dates without a time are midnight UTC;
  months are calendar months: one month before 31 March is 28 February. An
  unknown value satisfies "is null" and nothing else, so != does not find it. Of
  several values (tags, network.*, software.installed) any may satisfy a
  condition; ${negativeOperators()} mean that there are values and none of
  them does. software.notInstalled also finds a device that reported no
  software. No value is in an empty list; every known value is not in it. A
  filter is at most 10 levels deep and has at most 200 conditions and groups.

  As JSON, for --file and the API:
    {"operator":"AND","conditions":[
      {"field":"osType","operator":"equals","value":"windows"},
      {"field":"lastSeenAt","operator":"notWithinLast",
       "value":{"amount":7,"unit":"days"}},
      {"operator":"OR","conditions":[
        {"field":"tags","operator":"hasAny","value":["kiosk","till"]},
        {"field":"hostname","operator":"matches","value":"^pos-[0-9]+$"}]}]}

  svc filters preview --where 'status = offline and tags is empty'
  svc filters create --name Stale --where 'lastSeenAt not within 30 days'
  svc filters explain --where 'osType = windows or tags is empty'
  svc filters show Stale --json --jq .conditions > stale.json
  svc filters create --name Copy --file stale.json
`,
  formatting: `FORMATTING
  Data goes to standard output, everything else to standard error. On a terminal
  lists are tables of its width: names come first, times are ages (--utc shows
  them exactly), columns without room are left out and named below. Ids are cut
  where their beginning is unique; every command takes 8 digits of an id or
  more, with or without …

  In a pipe tables are aligned plain text, complete, exact and without colors.
  On a terminal control characters, and characters that reorder or hide text,
  are printed as \\u009b; files and pipes get the original bytes.

  --json, -o json       the reply of the API, one document; with --all it has
                        every row
  -o ndjson             a JSON document per line, page by page; for long lists
  -o yaml               the same document as YAML
  --csv, -o csv         every field, RFC 4180 quoting; nested fields are columns
                        such as user.email
  -o table              a table, also for single records
  -q, -o id             ids only
  --jq EXPR             the output of this jq program on the JSON, with strings
                        unquoted
  --columns a,b         only these columns, in this order, in any format
  --no-header           without the line of column names
  --utc                 exact times on a terminal

  Lists: --limit N rows, --page N, --all. --watch redraws a list on a terminal,
  and prints rows that changed in a pipe.

  svc orgs --csv --no-header --columns slug,name
  svc devices --all -o ndjson > devices.ndjson
  svc enroll -q --expired | svc enroll delete - --yes
`,
}
