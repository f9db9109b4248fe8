import { join } from 'node:path'
import { quoted } from '../../cli/systemd-words.ts'

export const agentUnitName = 'svc-agent.service'

export type AgentUnitOptions = {
  /** Owned by the service user; contains the state and the binary, which the agent replaces itself. */
  stateDir: string
  user: string
  /** Overrides the address of the enrollment. */
  url: string | undefined
}

export const binaryPath = (stateDir: string): string => join(stateDir, 'bin', 'svc-agent')

/** The systemd unit of the agent (systemd.exec(5)): read access to the machine, write access to its own directory. */
export const agentUnitText = ({ stateDir, user, url }: AgentUnitOptions): string => `[Unit]
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
# The watchdog stops the agent.
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
