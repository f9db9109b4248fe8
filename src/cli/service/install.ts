import { randomBytes } from 'node:crypto'
import { chmodSync, copyFileSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { makeFolder } from '../../core/make-folder.ts'
import { type SecretEntry, type SecretName, secretEntryOf, secretNames } from '../../core/secret-names.ts'
import { CliError, usageError } from '../exit-codes.ts'
import {
  checkPrivileges,
  type InstallStep,
  noteOf,
  runSteps,
  systemctl,
  systemUnits,
  userStep,
} from '../machine-steps.ts'
import { resolveSettings } from '../settings.ts'
import { printNote } from '../stderr-notes.ts'
import { quoted } from '../systemd-words.ts'
import { type ServiceUnitOptions, serviceUnitName, serviceUnitText } from './unit.ts'

type CommonFlags = {
  'etc-dir'?: string | undefined
  'unit-dir'?: string | undefined
  'dry-run': boolean
  yes: boolean
  'no-input': boolean
}
export type InstallFlags = CommonFlags & {
  user?: string | undefined
  'public-url'?: string | undefined
  port?: number | undefined
  print: boolean
}

/** The steps that were done, or would be; they are also printed as they happen. */
export type InstallResult = {
  done: boolean
  steps: string[]
  dataDir: string
  settingsFile: string
  credentialsDir: string
  unitFile: string
  /** Content of the unit, when only that was requested. */
  unit: string | null
}

/** systemd makes it (`StateDirectory=`). */
const dataDir = '/var/lib/svc'

/** Where packages put their unit: one of the same name in /etc would take its place. */
const packaged = ['/usr/lib/systemd/system', '/lib/systemd/system']

function placeOf(flags: CommonFlags) {
  const etc = resolve(flags['etc-dir'] ?? '/etc/svc')
  if (!/^(\/[\w.+@-]+){2,}$/.test(etc)) throw usageError(`--etc-dir cannot be ${etc}`)
  const unitDir = resolve(flags['unit-dir'] ?? systemUnits)
  const files = {
    dataDir,
    settingsFile: join(etc, 'svc.env'),
    credentialsDir: join(etc, 'credentials'),
    unitFile: join(unitDir, serviceUnitName),
  }
  return { etc, unitDir, files }
}

/** What a data directory has in secrets.json. */
type StoredSecrets = { readonly [E in SecretEntry]?: string } | undefined

/** `program` is the command line of this program, `readStoredSecrets` reads secrets.json. */
export async function installService(
  flags: InstallFlags,
  program: readonly string[],
  readStoredSecrets: (dataDir: string) => StoredSecrets,
): Promise<InstallResult> {
  const { etc, unitDir, files } = placeOf(flags)
  const user = flags.user ?? 'svc'
  if (!/^[a-z_][a-z0-9_-]{0,31}$/.test(user)) throw usageError(`--user cannot be "${user}"`)
  const options = { program: program.map(quoted).join(' '), user, etc, dataDir }
  if (flags.print) return { ...files, done: false, steps: [], unit: serviceUnitText(options) }
  checkPrivileges(flags, user, unitDir)
  if (unitDir === systemUnits) {
    const other = packaged.map((folder) => join(folder, serviceUnitName)).find((file) => existsSync(file))
    if (other !== undefined)
      throw new CliError(`svc is installed by a package, with ${other}`, {
        hint: 'systemctl enable --now svc',
      })
    for (const path of program) assertReadable(path)
  }
  const outcome = await runSteps(
    stepsOf(options, files, credentialsFrom(readStoredSecrets(dataDir)), flags),
    flags,
    resolveSettings(flags),
  )
  if (outcome.done) {
    noteOf(unitDir, serviceUnitName)
    printNote(
      `Settings are in ${files.settingsFile}; the first password will be in ${dataDir}/first-password`,
    )
    printNote(`Keep a copy of ${files.credentialsDir}: without it neither data nor backups can be read`)
  }
  return { ...files, ...outcome }
}

/** The unit has no access to the homes of people (`ProtectHome=`), and to /tmp and /run it has one of its own. */
export function assertReadable(path: string): void {
  const [, top = ''] = path.split('/')
  if (!['home', 'root', 'tmp'].includes(top) && !path.startsWith('/run/user/')) return
  throw new CliError(`The service could not read ${path}, which is below /${top}`, {
    hint: 'npm install --global --prefix /usr/local, then: /usr/local/bin/svc serve install',
  })
}

type Files = ReturnType<typeof placeOf>['files']

/** Each can be repeated. Settings and secrets that are there stay. */
function stepsOf(
  options: ServiceUnitOptions,
  { settingsFile, credentialsDir, unitFile: unit }: Files,
  known: Credentials,
  { 'public-url': publicUrl, port = 3000 }: InstallFlags,
): InstallStep[] {
  const steps = userStep(options.user, dataDir)
  if (!existsSync(settingsFile)) {
    const former = join(dirname(settingsFile), 'settings')
    if (existsSync(former))
      throw new CliError(`The settings are in ${former}, where they were before`, {
        hint: `mv ${former} ${settingsFile}`,
      })
    const text = settingsText(publicUrl, port)
    steps.push({ what: `write ${settingsFile}`, do: () => write(settingsFile, text, 0o640) })
  } else if (publicUrl !== undefined) {
    throw usageError(`${settingsFile} exists: change PUBLIC_URL in it, and leave out --public-url`)
  }
  const missing = secretNames.filter((name) => !isFilled(join(credentialsDir, name)))
  // A credential counts before the file: a new one would keep the service from the data that it has.
  const copied = missing.filter((name) => known[name] !== undefined)
  if (copied.length > 0) {
    const what = `copy ${copied.join(', ')} from ${dataDir}/secrets.json to ${credentialsDir}, which root alone can read`
    steps.push({ what, do: () => writeCredentials(credentialsDir, copied, (name) => known[name]!) })
  }
  const invented = missing.filter((name) => known[name] === undefined)
  if (invented.length > 0) {
    const what = `generate ${invented.join(', ')} in ${credentialsDir}, which root alone can read`
    const random = () => randomBytes(32).toString('base64')
    steps.push({ what, do: () => writeCredentials(credentialsDir, invented, random) })
  }
  const text = serviceUnitText(options)
  if (!existsSync(unit)) steps.push({ what: `write ${unit}`, do: () => write(unit, text, 0o644) })
  else if (readFileSync(unit, 'utf8') !== text) {
    const replace = () => {
      copyFileSync(unit, `${unit}.before`)
      write(unit, text, 0o644)
    }
    steps.push({ what: `replace ${unit}, and keep the former one as ${unit}.before`, do: replace })
  }
  const unitDir = dirname(unit)
  return [
    ...steps,
    ...systemctl(unitDir, ['daemon-reload'], ['enable', serviceUnitName], ['restart', serviceUnitName]),
  ]
}

const isFilled = (file: string): boolean => existsSync(file) && statSync(file).size > 0

function write(file: string, text: string, mode: number): void {
  makeFolder(dirname(file), 0o755)
  writeFileSync(file, text, { mode })
  // A file that is there keeps its mode, and a new one has that of the umask.
  chmodSync(file, mode)
}

function writeCredentials(
  folder: string,
  names: readonly SecretName[],
  secretOf: (name: SecretName) => string,
): void {
  makeFolder(folder)
  chmodSync(folder, 0o700)
  for (const name of names) {
    rmSync(join(folder, name), { force: true })
    writeFileSync(join(folder, name), `${secretOf(name)}\n`, { mode: 0o600, flag: 'wx' })
  }
}

type Credentials = { [Name in SecretName]?: string }

/** The secrets that a service has generated, by the names of credentials. */
export const credentialsFrom = (stored: StoredSecrets): Credentials =>
  Object.fromEntries(
    secretNames.flatMap((name) => {
      const value = stored?.[secretEntryOf[name]]
      return value ? [[name, value]] : []
    }),
  )

const settingsText = (publicUrl: string | undefined, port: number): string =>
  `# Settings of svc without secrets. svc-serve(8) has all of them.
NODE_ENV=production
SVC_DATA_DIR=${dataDir}
HOST=127.0.0.1
PORT=${port}
# The address that people and machines use, of the proxy in front.
${publicUrl === undefined ? '# PUBLIC_URL=https://svc.example.com' : `PUBLIC_URL=${publicUrl}`}
TRUST_PROXY_HEADERS=true
TRUSTED_PROXY_CIDRS=127.0.0.1/32
`

/** Leaves data, settings, secrets and user. */
export async function uninstallService(flags: CommonFlags): Promise<InstallResult> {
  const { unitDir, files } = placeOf(flags)
  checkPrivileges(flags, '', unitDir)
  const { unitFile } = files
  if (!existsSync(unitFile)) {
    printNote(`Nothing to remove: there is no ${unitFile}`)
    return { ...files, done: false, steps: [], unit: null }
  }
  const steps = [
    ...systemctl(unitDir, ['disable', '--now', serviceUnitName]),
    { what: `remove ${unitFile}`, do: () => rmSync(unitFile) },
    ...systemctl(unitDir, ['daemon-reload']),
  ]
  const outcome = await runSteps(steps, flags, resolveSettings(flags))
  if (outcome.done) {
    printNote(`The data stays in ${dataDir}, the settings in ${files.settingsFile}`)
    printNote(`The secrets stay in ${files.credentialsDir}: without them the data cannot be read`)
  }
  return { ...files, ...outcome }
}
