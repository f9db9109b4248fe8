# In an empty Debian, as root: installs, uses, upgrades and purges the packages in /old and /new. PORT is free.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root SVC_CREDENTIAL_STORE=file
export SVC_URL=http://127.0.0.1:$PORT
fail() { echo "FAILED: $*"; [ ! -f /tmp/log ] || tail -20 /tmp/log; exit 1; }
same() { [ "$2" = "$3" ] || fail "$1 is $3, not $2"; }

serve() {
  svc-admin serve >/tmp/log 2>&1 &
  pid=$!
  for _ in $(seq 300); do
    grep -q '^listening on ' /tmp/log && return
    kill -0 $pid 2>/dev/null || fail 'the service does not start'
    sleep 0.2
  done
  fail 'the service does not listen'
}
end() { kill $pid; wait $pid || fail 'the service does not end well'; }
keys() { cat /etc/svc/credentials/* | sha256sum; }

dpkg --install /old/svc_*.deb >/tmp/dpkg
grep -q 'systemctl enable --now svc' /tmp/dpkg || fail 'the package does not say what comes next'
same 'the version' '0.0.9~rc.1-1' "$(dpkg-query -Wf '${Version}' svc)"
same 'the home of the user' /var/lib/svc "$(getent passwd svc | cut -d: -f6)"
same 'svc.env' '640 root' "$(stat -c '%a %U' /etc/svc/svc.env)"
same 'the folder of the secrets' '700 root' "$(stat -c '%a %U' /etc/svc/credentials)"
same 'a secret' '600 root 45' "$(stat -c '%a %U %s' /etc/svc/credentials/JWT_SECRET)"
same 'how many secrets differ' 6 "$(cat /etc/svc/credentials/* | sort -u | wc -l)"
for file in man/man1/svc.1.gz man/man8/svc-serve.8.gz bash-completion/completions/svc zsh/vendor-completions/_svc; do
  [ -s /usr/share/$file ] || fail "no $file"
done
dpkg --verify svc
svc --version | grep -q "^svc/" || fail 'svc does not start'

sed -i "s,^PORT=.*,PORT=$PORT," /etc/svc/svc.env
echo 'SVC_ADMIN_PASSWORD=correct horse battery staple' >>/etc/svc/svc.env
# StateDirectory= of the unit makes it.
install -d -m 0700 -o svc -g svc /var/lib/svc
serve
printf %s 'correct horse battery staple' | svc login --email admin@example.com --password-stdin >/dev/null
svc partners create --name Acme --slug acme -q >/dev/null
same 'the user of the service' svc "$(stat -c %U /var/lib/svc/svc.sqlite)"
end

before=$(keys)
dpkg --install /new/svc_*.deb >/tmp/dpkg
grep -q 'enable --now' /tmp/dpkg && fail 'an upgrade says what is for a first installation'
same 'the secrets' "$before" "$(keys)"
same 'svc.env' '640 root' "$(stat -c '%a %U' /etc/svc/svc.env)"
grep -q "^PORT=$PORT" /etc/svc/svc.env || fail 'an upgrade changes svc.env'
serve
same 'the partner' acme "$(svc partners list --jq '.data[].slug' | tr -d '"')"
end

dpkg --remove svc >/dev/null
[ ! -e /usr/bin/svc ] && [ -e /etc/svc/svc.env ] || fail 'a removal is not one'
dpkg --purge svc >/dev/null 2>/tmp/purged
same 'what a purge says of data' 2 "$(grep -c 'stays' /tmp/purged)"
[ ! -e /etc/svc/svc.env ] && [ ! -e /usr/lib/svc ] || fail 'a purge leaves files of the package'
same 'the secrets' "$before" "$(keys)"
[ -s /var/lib/svc/svc.sqlite ] || fail 'a purge removes data'

dpkg --install /new/svc-agent_*.deb >/dev/null
svc-agent --version >/dev/null
dpkg --purge svc-agent >/dev/null
[ ! -e /usr/bin/svc-agent ] || fail 'the agent stays'
echo passed
