import { secretNames } from '../../core/secret-names.ts'

export type ServiceUnitOptions = {
  /** The program, by its full path. */
  program: string
  user: string
  /** Of svc.env, and of the folder credentials. */
  etc: string
  /** Below /var/lib, where systemd makes it. */
  dataDir: string
}

export const serviceUnitName = 'svc.service'

/** The systemd unit of the service (systemd.exec(5)), with no more privileges than it needs. */
export const serviceUnitText = ({ program, user, etc, dataDir }: ServiceUnitOptions): string => `[Unit]
Description=svc device management service
Documentation=man:svc-serve(8)
Wants=network-online.target
After=network-online.target postgresql.service

[Service]
# The service says when it listens, and three times a minute that it is not stuck. It does so with systemd-notify, a child of it.
Type=notify
NotifyAccess=all
WatchdogSec=60
# Migrations of an upgrade come before it listens.
TimeoutStartSec=infinity
User=${user}
Group=${user}
ExecStart=${program} serve
# Takes secrets that have changed, without a restart.
ExecReload=/bin/kill -HUP $MAINPID
EnvironmentFile=${etc}/svc.env

# Secrets are files of root. systemd hands them to this service alone, which finds each by its name (systemd.exec(5), "Credentials").
${secretNames.map((name) => `LoadCredential=${name}:${etc}/credentials/${name}`).join('\n')}

Restart=always
RestartSec=5
# The service finishes its requests within ten seconds.
TimeoutStopSec=20
# MAX_CONNECTIONS, and the files of the database.
LimitNOFILE=65536

StateDirectory=${dataDir.replace(/^\/var\/lib\//, '')}
StateDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
# Where backups go, if it is there; another folder needs its own line in a drop-in.
ReadWritePaths=-/var/backups/svc
ProtectHome=yes
ProtectProc=invisible
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# Backups and checks run at a lower priority than what answers.
SystemCallFilter=setpriority
# Node raises its limit of open files by itself, and goes on where it may not.
SystemCallErrorNumber=EPERM
# MemoryDenyWriteExecute= is not possible: Node compiles JavaScript while it runs.

[Install]
WantedBy=multi-user.target
`
