// What the packages run when they are installed, upgraded and removed.
import { serviceUnitName } from '../src/cli/service/unit.ts'
import { secretEntryOf, secretNames } from '../src/core/secret-names.ts'

/** Each installation has secrets of its own, in files of root. Those that are there stay: without them the data cannot be read. */
const secrets = `install -d -m 0700 /etc/svc/credentials
  # A credential counts before secrets.json: what the service has generated there is copied.
  stored=/var/lib/svc/secrets.json
  for pair in ${Object.entries(secretEntryOf)
    .map((pair) => pair.join(':'))
    .join(' ')}; do
    file=/etc/svc/credentials/\${pair%%:*}
    if [ ! -s "$file" ] && [ -e "$stored" ]; then
      (umask 077 && grep -o "\\"\${pair#*:}\\": *\\"[^\\"]*\\"" "$stored" | cut -d '"' -f 4 >"$file") || true
    fi
  done
  for name in ${secretNames.join(' ')}; do
    file=/etc/svc/credentials/$name
    [ -s "$file" ] || (umask 077 && head -c 32 /dev/urandom | base64 >"$file")
  done`

const stays = `for place in /var/lib/svc /etc/svc/credentials; do
    if [ -d "$place" ]; then echo "svc: $place stays; remove it when you need its data no more" >&2; fi
  done`

/**
 * Of Debian. A new installation does not start: its settings are those of an example. An upgrade stops the service before its files
 * are replaced, since it loads some of them late, and starts it after, unless it is disabled.
 */
export const debian = {
  svc: {
    postinst: `#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if ! getent passwd svc >/dev/null; then
    adduser --system --group --home /var/lib/svc --no-create-home --gecos 'svc service' --quiet svc
  fi
  ${secrets}
  deb-systemd-helper update-state ${serviceUnitName} >/dev/null || true
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then deb-systemd-invoke start ${serviceUnitName} >/dev/null || true; fi
  fi
  if [ -z "$2" ]; then
    echo "svc: set its addresses in /etc/svc/svc.env, then: systemctl enable --now svc"
  fi
elif [ -d /run/systemd/system ]; then
  # An upgrade or a removal that failed has stopped it.
  deb-systemd-invoke start ${serviceUnitName} >/dev/null || true
fi
`,
    prerm: `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then deb-systemd-invoke stop ${serviceUnitName} >/dev/null || true; fi
`,
    postrm: `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
if [ "$1" = purge ]; then
  deb-systemd-helper purge ${serviceUnitName} >/dev/null || true
  ${stays}
fi
`,
  },
  'svc-agent': {
    // The agent of the service is a copy that replaces itself, with a unit that names it: both would stay without their program.
    prerm: `#!/bin/sh
set -e
if [ "$1" = remove ] && [ -e /etc/systemd/system/svc-agent.service ]; then
  svc-agent uninstall --yes
fi
`,
  },
} as const

/** The same for RPM, in the form of a spec. $1 is how many versions are installed after it. */
export const rpm = {
  svc: `%pre
getent passwd svc >/dev/null || useradd --system --user-group --home-dir /var/lib/svc --no-create-home --shell /sbin/nologin svc
if [ "$1" -gt 1 ] && [ -d /run/systemd/system ]; then
  systemctl is-active --quiet ${serviceUnitName} && touch /run/svc-upgrade && systemctl stop ${serviceUnitName} || true
fi

%post
  ${secrets}
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" -eq 1 ]; then
  echo "svc: set its addresses in /etc/svc/svc.env, then: systemctl enable --now svc"
fi

%preun
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now ${serviceUnitName} || true; fi

%postun
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" -eq 0 ]; then
  ${stays}
fi

%posttrans
if [ -e /run/svc-upgrade ]; then
  rm -f /run/svc-upgrade
  systemctl start ${serviceUnitName} || true
fi
`,
  'svc-agent': `%preun
if [ "$1" -eq 0 ] && [ -e /etc/systemd/system/svc-agent.service ]; then
  svc-agent uninstall --yes
fi
`,
} as const
