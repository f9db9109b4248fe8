import { join } from 'node:path'

export const unitName = 'svc-agent.service'

export type Placement = {
  /** The service user owns it, and keeps state and binary in it: the agent replaces the latter itself. */
  stateDir: string
  user: string
  /** Instead of the address it enrolled at. */
  url: string | undefined
}

export const binaryPath = (stateDir: string): string => join(stateDir, 'bin', 'svc-agent')

/** The unit by which systemd runs the agent (systemd.exec(5)): it may read the machine, and write to its own directory. */
export const unitText = ({ stateDir, user, url }: Placement): string => `[Unit]
Description=svc agent
Documentation=man:svc-agent(7)
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=simple
User=${user}
ExecStart=${[binaryPath(stateDir), 'run', '--state-dir', stateDir, ...(url === undefined ? [] : ['--url', url])].map(quoted).join(' ')}
# SVC_CA_FILE, HTTPS_PROXY and the like.
EnvironmentFile=-/etc/default/svc-agent
Environment=SVC_NO_INPUT=1
Restart=always
RestartSec=15
# The agent is asked to end by its watchdog.
KillMode=mixed
TimeoutStopSec=30

SupplementaryGroups=systemd-journal
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ReadWritePaths=${quoted(stateDir)}
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
`

/** A word as systemd reads it: nothing in it is a specifier, a variable or an end. */
function quoted(word: string): string {
  const plain = word.replaceAll('%', '%%').replaceAll('$', '$$$$')
  if (!/[\s"'\\;]/.test(plain)) return plain
  return `"${plain.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
}
