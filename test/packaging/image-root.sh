# In a mount namespace of its own, as root: runs the unpacked image in CONTAINER as a container runtime does.
set -eu
fail() { echo "FAILED: $*"; [ ! -f "$log" ] || tail -20 "$log"; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1 is $3, not $2"; }
log=$CONTAINER.log
password='correct horse battery staple'

mount --make-rprivate /
mount --bind "$CONTAINER" "$CONTAINER"
mkdir "$CONTAINER/proc" "$CONTAINER/dev"
mount --bind /dev "$CONTAINER/dev"
mount --bind /proc "$CONTAINER/proc"
mount -t tmpfs -o "mode=0700,uid=${IMAGE_USER%:*},gid=${IMAGE_USER#*:}" data "$CONTAINER/data"
mount -o remount,bind,ro "$CONTAINER"
! touch "$CONTAINER/etc/changed" 2>/dev/null || fail 'the root is not read-only'

# Without a shell, and without what this environment has.
inside() {
  # shellcheck disable=SC2086
  env -i $IMAGE_ENV SVC_ADMIN_PASSWORD="$password" SVC_CREDENTIAL_STORE=file SVC_URL="http://127.0.0.1:$port" \
    /usr/sbin/chroot --userspec="$IMAGE_USER" "$CONTAINER" "$@"
}
port=${IMAGE_ENV##*PORT=}
healthy() { inside $IMAGE_HEALTH >/dev/null; }

# The first process of its own namespace, as in a container: signals without a handler would be ignored.
serve() {
  # shellcheck disable=SC2086
  env -i $IMAGE_ENV SVC_ADMIN_PASSWORD="$password" unshare --pid --fork --kill-child \
    /usr/sbin/chroot --userspec="$IMAGE_USER" "$CONTAINER" $IMAGE_COMMAND >"$log" 2>&1 &
  outer=$!
  for _ in $(seq 300); do
    if healthy; then
      pid=$(pgrep -P $outer)
      return
    fi
    kill -0 $outer 2>/dev/null || fail 'the service does not start'
    sleep 0.2
  done
  fail 'the service is not healthy'
}
end() { kill -TERM "$pid"; wait $outer || fail "the service ends with $?"; }

! healthy || fail 'the health check passes without a service'
serve
same 'its user' "${IMAGE_USER%:*}" "$(stat -c %u "/proc/$pid")"
same 'its place' 1 "$(awk '/^NSpid:/ { print $NF }' "/proc/$pid/status")"
printf %s "$password" | inside svc login --email admin@localhost --password-stdin >/dev/null
inside svc partners create --name Acme --slug acme -q >/dev/null
end
! healthy || fail 'the health check passes after the end'
serve
same 'the partner' acme "$(inside svc partners list --jq '.data[].slug' | tr -d '"')"
inside svc db backup --out /data/one.backup --json >/dev/null || fail 'it makes no backup'
end
echo passed
