// The package of Windows for the agent, made by wixl of msitools.
import { execFileSync } from 'node:child_process'
import { copyFileSync, lutimesSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { v5 as uuidOf } from 'uuid'
import { msiActions } from './msi-actions.ts'
import { settleSummary } from './msi-summary.ts'
import { msiVersion } from './msi-version.ts'
import { sha256, sha256OfFile } from './sums.ts'

/** Fixed for good: by it Windows finds the version that an installation replaces. */
const upgradeCode = '6f1d3c0a-7f0e-4c5b-9d2e-5b8f0c4a91e7'

export type MsiContents = {
  version: string
  /** Path by name in the folder of the program; `svc-agent.exe` is one of them. */
  files: Readonly<Record<string, string>>
  /** Since 1970. */
  seconds: number
}

/** Writes the MSI. `folder` is for what it is made of. */
export function makeMsi(contents: MsiContents, folder: string, out: string): void {
  const { files, seconds } = contents
  mkdirSync(folder, { recursive: true })
  const put = (name: string): void => lutimesSync(join(folder, name), seconds, seconds)
  for (const [name, path] of Object.entries(files)) {
    copyFileSync(path, join(folder, name))
    put(name)
  }
  writeFileSync(join(folder, 'actions.js'), msiActions)
  put('actions.js')
  writeFileSync(join(folder, 'svc-agent.wxs'), wxsOf(contents))
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(seconds), TZ: 'UTC' }
  const args = ['--arch', 'x64', '--output', out, 'svc-agent.wxs']
  execFileSync('wixl', args, { cwd: folder, env, stdio: ['ignore', 'ignore', 'inherit'] })
  const queries = corrections(contents.version).flatMap((query) => ['-q', query])
  execFileSync('msibuild', [out, ...queries], { stdio: ['ignore', 'ignore', 'inherit'] })
  settleSummary(out, codesOf(contents).package, seconds)
}

/**
 * The name of the product and of the package: by their contents, so that a package that was made again differs from another one of the
 * same version, which it replaces.
 */
function codesOf({ version, files, seconds }: MsiContents) {
  const sums = Object.entries(files).map(([name, path]) => `${name} ${sha256OfFile(path)}`)
  const all = sha256([version, seconds, msiActions, ...sums.sort()].join('\n'))
  return { product: uuidOf(`product ${all}`, upgradeCode), package: uuidOf(`package ${all}`, upgradeCode) }
}

function wxsOf(contents: MsiContents): string {
  const { version, files } = contents
  const codes = codesOf(contents)
  const names = Object.keys(files).sort()
  const components = names.map(
    (name, n) => `<Component Id="Component${n}" Guid="${uuidOf(name, upgradeCode)}" Win64="yes">
            <File Id="File${n}" Name="${name}" Source="${name}" KeyPath="yes"/>
          </Component>`,
  )
  return `<?xml version="1.0" encoding="utf-8"?>
<Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
  <Product Id="${codes.product}" UpgradeCode="${upgradeCode}" Name="svc agent" Manufacturer="svc" Version="${msiVersion(version)}" Language="1033" Codepage="1252">
    <Package Id="${codes.package}" InstallerVersion="500" Compressed="yes" InstallScope="perMachine" Description="svc agent ${version}" Comments="svc agent ${version}" Manufacturer="svc" Languages="1033" SummaryCodepage="1252"/>
    <Media Id="1" Cabinet="files.cab" EmbedCab="yes"/>
    <Condition Message="svc-agent needs Windows 10 or Windows Server 2016, or a later version.">Installed OR VersionNT64 &gt;= 603</Condition>
    <Upgrade Id="${upgradeCode}">
      <UpgradeVersion Minimum="0.0.0" IncludeMinimum="yes" Maximum="${msiVersion(version)}" IncludeMaximum="yes" Property="OLDERFOUND"/>
      <UpgradeVersion Minimum="${msiVersion(version)}" IncludeMinimum="no" OnlyDetect="yes" Property="NEWERFOUND"/>
    </Upgrade>
    <Condition Message="A newer version of the svc agent is installed. Remove it first to go back.">NOT NEWERFOUND</Condition>
    <!-- Not in the log. The data of the action has the key as well. -->
    <Property Id="MsiHiddenProperties" Value="SVC_ENROLLMENT_KEY;InstallAgent;CustomActionData"/>
    <Property Id="ARPNOMODIFY" Value="1"/>
    <Property Id="ARPCOMMENTS" Value="Version ${version}"/>
    <!-- Node has a version of its own in the file, by which an update of the agent would be taken for the same file. -->
    <Property Id="REINSTALLMODE" Value="amus"/>
    <!-- The agent ends with its task. -->
    <Property Id="MSIRESTARTMANAGERCONTROL" Value="Disable"/>
    <Directory Id="TARGETDIR" Name="SourceDir">
      <Directory Id="ProgramFiles64Folder">
        <Directory Id="ProgramFolder" Name="svc-agent">
          ${components.join('\n          ')}
        </Directory>
      </Directory>
    </Directory>
    <Feature Id="Agent" Title="svc agent" Level="1">
      ${names.map((_, n) => `<ComponentRef Id="Component${n}"/>`).join('\n      ')}
    </Feature>
    <Binary Id="Actions" SourceFile="actions.js"/>
    ${actions.map(actionOf).join('\n    ')}
    <InstallExecuteSequence>
      <RemoveExistingProducts Sequence="1501"/>
      ${actions.map(sequenceOf).join('\n      ')}
    </InstallExecuteSequence>
  </Product>
</Wix>
`
}

type Action = {
  id: string
  /** The function of the script. */
  call: string
  when: 'deferred' | 'rollback'
  data: string
  /** Between standard actions, which have fixed numbers: InstallInitialize has 1500, InstallFiles 4000 and InstallFinalize 6600. */
  sequence: number
  condition: string
  /** Whether its failure ends the installation. */
  isChecked: boolean
}

/** In the order in which they run. What undoes an action comes before it: it runs when that one or a later one fails. */
const actions: readonly Action[] = [
  {
    // An upgrade that fails starts the agent of before again.
    id: 'RestoreAgent',
    call: 'InstallAgent',
    when: 'rollback',
    data: '[ProgramFolder]|||',
    sequence: 1610,
    condition: 'REMOVE="ALL"',
    isChecked: false,
  },
  {
    id: 'UninstallAgent',
    call: 'UninstallAgent',
    when: 'deferred',
    data: '[ProgramFolder]|[SVC_PURGE]',
    sequence: 1620,
    condition: 'REMOVE="ALL"',
    isChecked: false,
  },
  {
    id: 'UndoInstallAgent',
    call: 'UninstallAgent',
    when: 'rollback',
    data: '[ProgramFolder]|',
    sequence: 6510,
    condition: 'NOT Installed',
    isChecked: false,
  },
  {
    id: 'InstallAgent',
    call: 'InstallAgent',
    when: 'deferred',
    data: '[ProgramFolder]|[SVC_URL]|[SVC_ENROLLMENT_KEY]|[SVC_ENROLLMENT_KEY_FILE]',
    sequence: 6520,
    condition: 'NOT (REMOVE="ALL")',
    isChecked: true,
  },
]

const actionOf = ({ id, call, data }: Action): string =>
  `<CustomAction Id="Set${id}" Property="${id}" Value="${data}"/>
    <CustomAction Id="${id}" BinaryKey="Actions" JScriptCall="${call}"/>`

/** A script in a stream, in the script of the installation, as the system, whose data is not in the log. */
const deferred = 0x0005 | 0x0400 | 0x0800 | 0x2000
const [rollback, goesOn] = [0x0100, 0x0040]
const setsProperty = 51

const typeOf = ({ when, isChecked }: Action): number =>
  deferred | (when === 'rollback' ? rollback : 0) | (isChecked ? 0 : goesOn)

/** What wixl cannot say of its tables. */
const corrections = (version: string): string[] => [
  ...actions.flatMap((action) => [
    `UPDATE \`CustomAction\` SET \`Type\` = ${typeOf(action)} WHERE \`Action\` = '${action.id}'`,
    `UPDATE \`CustomAction\` SET \`Type\` = ${setsProperty} WHERE \`Action\` = 'Set${action.id}'`,
  ]),
  // Those that a person who is no administrator may hand to an installation with elevation.
  `UPDATE \`Property\` SET \`Value\` = 'OLDERFOUND;NEWERFOUND;SVC_URL;SVC_ENROLLMENT_KEY;SVC_ENROLLMENT_KEY_FILE;SVC_PURGE' WHERE \`Property\` = 'SecureCustomProperties'`,
  // From the lowest version to this one, each of them included: a version that was made again replaces the one before.
  "DELETE FROM `Upgrade` WHERE `ActionProperty` = 'OLDERFOUND'",
  `INSERT INTO \`Upgrade\` (\`UpgradeCode\`, \`VersionMin\`, \`VersionMax\`, \`Attributes\`, \`ActionProperty\`) VALUES ('{${upgradeCode.toUpperCase()}}', '0.0.0', '${msiVersion(version)}', ${0x0100 | 0x0200}, 'OLDERFOUND')`,
]

/** By numbers: where wixl finds a place itself, it differs from build to build. */
const sequenceOf = ({ id, sequence, condition }: Action): string =>
  `<Custom Action="Set${id}" Sequence="${sequence - 1}">${condition}</Custom>
      <Custom Action="${id}" Sequence="${sequence}">${condition}</Custom>`
