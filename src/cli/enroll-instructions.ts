import { z } from 'zod'
import { agentVersions } from '../agents/versions/contract.ts'
import { ApiError } from '../core/client.ts'
import type { ReplyOf } from '../core/endpoint.ts'
import { MintedEnrollmentKey } from '../credentials/enrollment-keys/contract.ts'
import type { CommandContext } from './base.ts'
import type { Instructions } from './command-view.ts'
import { CliError, exitCodes } from './exit-codes.ts'
import { choiceFlag } from './flags.ts'
import { powerShellWord, shWord } from './shell-words.ts'

type Offer = Pick<ReplyOf<typeof agentVersions.latest>, 'downloadUrl' | 'checksum'>
type Machine = { platform: 'linux' | 'windows'; arch: string }

const machines: Readonly<Record<string, Machine>> = {
  linux: { platform: 'linux', arch: 'amd64' },
  'linux/arm64': { platform: 'linux', arch: 'arm64' },
  windows: { platform: 'windows', arch: 'amd64' },
  'windows/arm64': { platform: 'windows', arch: 'arm64' },
}

/** `svc enroll create --instructions`: the command that a new machine is enrolled with. */
export const enrollInstructions: Instructions = {
  flag: 'instructions',
  flags: {
    instructions: choiceFlag(
      'Print the command that enrolls such a machine, with the key in it, in place of the key',
      Object.keys(machines),
    ),
  },
  reply: MintedEnrollmentKey.extend({ instructions: z.string() }),
  async prepare(session, target) {
    const machine = machines[target]!
    const offer = await offerFor(session, machine)
    const { value: url } = session.settings.url
    const { line, where } = machine.platform === 'linux' ? linux : windows
    return { text: (key) => line(url, offer, key), where }
  },
}

/** Asked before the key is made: without an agent to install nobody could use it. */
async function offerFor({ anonymous }: CommandContext, { platform, arch }: Machine): Promise<Offer> {
  try {
    const { downloadUrl, checksum } = await anonymous.call(agentVersions.latest, {
      query: { platform, arch },
    })
    // Both become part of a command.
    if (/^[0-9a-f]{64}$/.test(checksum)) return { downloadUrl: new URL(downloadUrl).href, checksum }
    throw new CliError('The service has no SHA-256 of the agent')
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error
    throw new CliError(`No agent is offered for ${platform}/${arch}`, {
      exit: exitCodes.notFound,
      code: 'not_found',
      hint: 'svc agent sync-release registers a release and offers it; without --instructions the key is made anyway',
    })
  }
}

/** The key comes by standard input from a command that is part of the shell: no list of processes shows it. */
const linux = {
  where: 'run it as root on the machine, or send it there with … | ssh root@HOST sh',
  line: (url: string, { downloadUrl, checksum }: Offer, key: string): string =>
    `(set -e; d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; curl -fsSL -o "$d/svc-agent" ${shWord(downloadUrl)}; ` +
    `echo "${checksum}  $d/svc-agent" | sha256sum -c - >/dev/null; chmod 0755 "$d/svc-agent"; ` +
    `printf '%s\\n' ${shWord(key)} | "$d/svc-agent" install --url ${shWord(url)} --enrollment-key - --yes)`,
}

/** Only administrators write below Program Files: nobody replaces the file between the check and the start. */
const windows = {
  where: 'run it in PowerShell as an administrator of the machine',
  line: (url: string, { downloadUrl, checksum }: Offer, key: string): string =>
    "& { $ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'; " +
    "$d = Join-Path $env:ProgramFiles 'svc-agent'; $f = Join-Path $d 'setup.exe'; " +
    'New-Item -ItemType Directory -Force $d | Out-Null; ' +
    `try { Invoke-WebRequest -UseBasicParsing -Uri ${powerShellWord(downloadUrl)} -OutFile $f; ` +
    `if ((Get-FileHash -Algorithm SHA256 $f).Hash -ne ${powerShellWord(checksum)}) ` +
    "{ throw 'The downloaded agent is not the one that was released' }; " +
    `${powerShellWord(key)} | & $f install --url ${powerShellWord(url)} --enrollment-key - --yes; ` +
    "if ($LASTEXITCODE -ne 0) { throw 'The agent was not installed' } } finally { Remove-Item -Force $f } }",
}
