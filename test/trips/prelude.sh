# What the commands of a trip can use. Given: ROOT, TRIP (a folder of its own), and DATABASE_URL on Postgres.
export HOME=$TRIP SVC_CREDENTIAL_STORE=file SVC_AGENT_STATE_DIR=$TRIP/agent SVC_DATA_DIR=$TRIP/data
export PATH="$ROOT/node_modules/.bin:$PATH" NO_COLOR=1 SVC_NO_UPDATE_CHECK=1
export SVC_ADMIN_EMAIL=admin@example.com SVC_ADMIN_PASSWORD='correct horse battery staple'
mkdir -p "$TRIP/data" "$TRIP/path"

# No function: what goes on in the background is then a shell of its own, and its end not that of the command.
printf '#!/bin/sh\nexec node "%s/bin/svc.js" "$@"\n' "$ROOT" >"$TRIP/path/svc"
chmod +x "$TRIP/path/svc"
export PATH="$TRIP/path:$PATH"

# Starts the service, again on the same port once it had one.
serve() {
  : >"$TRIP/out"
  node "$ROOT/bin/svc.js" serve --port "${PORT:-0}" >"$TRIP/out" 2>>"$TRIP/err" &
  echo $! >"$TRIP/pid"
  for _ in $(seq 200); do
    SVC_URL=$(sed -n 's/^listening on //p' "$TRIP/out")
    [ -n "$SVC_URL" ] && break
    sleep 0.05
  done
  PORT=${SVC_URL##*:}
  export SVC_URL
}

stop() {
  local pid
  pid=$(cat "$TRIP/pid") || return 0
  kill "$pid" && wait "$pid"
}

# The code an authenticator shows for a secret, a step later than the last one, since a code works once.
otp() { node "$ROOT/test/trips/otp.js" "$@"; }

field() { node -e 'console.log(JSON.parse(require("fs").readFileSync(0, "utf8"))[process.argv[1]])' "$1"; }

# Someone with the database in their hands changes one byte of one entry.
tamper() {
  if [ -n "${DATABASE_URL:-}" ]; then node "$ROOT/test/trips/tamper-postgres.js" "$@"; else
    stop
    node "$ROOT/test/trips/tamper-sqlite.js" "$SVC_DATA_DIR/svc.sqlite" "$@"
    serve
  fi
}
