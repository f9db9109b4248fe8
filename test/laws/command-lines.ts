/** A command in the manifest. */
export type Command = { args: Record<string, object>; flags: Record<string, object>; examples: string[] }

/** Commands that run until interrupted, sign in, read a database, or serve a shell: each is run in its own process. */
export const alone = [
  'agent:run',
  'agent:simulate',
  'complete',
  'db:status',
  'login',
  'serve',
  'webhooks:listen',
]
/** Commands that call no service and read no foreign data; some change this machine. */
export const local = [
  'agent:install',
  'agent:uninstall',
  'agent:sign-release',
  'completion',
  'db:backup',
  'db:copy',
  'db:drill',
  'db:migrate',
  'db:rehearse',
  'db:reset-mfa',
  'db:restore',
  'db:unlock',
  'db:vacuum',
  'doctor',
  'serve:install',
  'serve:uninstall',
  'secrets:list',
  'secrets:reseal',
  'secrets:retire',
  'secrets:rotate',
  'update-check',
]

const uuid = '0197c1c4-0000-7000-8000-000000000010'

/** Arguments that are used as in the example; all others are names of records. */
const spoken =
  /^(method|path|action|resource|enabled|type|level|number|log|kind|entry|version|dir|name|file)$/
const records = /^--(org|site|partner|role|device|group|filter|user|script|by|on)$/
/** Flags of the output format, and flags that run endlessly or write files. */
const looks =
  /^(--json|--csv|-q|--quiet|--no-header|-f|--follow|--watch|--wait|--all|--dry-run|--bundle|--login|--if-not-exists)$/
const looksWithValue = /^(--url|-o|--output|--jq|--columns|--out-file|--cursor-file|--after|--pin)$/

/** Files named in examples. */
export const files: Readonly<Record<string, string>> = {
  'secret.txt': 'correct-Horse-9-battery\n',
  'clear.sh': 'true\n',
  'customers.csv': 'name,slug\nBlue Bakery,blue-bakery\n',
  'sites.csv': 'name\nMain Office\n',
  'staff.csv': 'email,name,roleId\nada@example.com,Ada,0197c1c4-0000-7000-8000-00000000f1a7\n',
  'body.json': '{}',
  'production.yaml': 'sites: []\n',
  'headers.txt': 'webhook-id: 1\nwebhook-timestamp: 1\nwebhook-signature: v1,AAAA\n',
}

/** Arguments that the examples leave to a prompt or to standard input. */
const more: Readonly<Record<string, string[]>> = {
  'auth:approve': ['--user-code', '@secret.txt', '--yes'],
  'invite:accept': ['--invitation', '@secret.txt', '--password', '@secret.txt'],
  'password:change': ['--current-password', '@secret.txt', '--new-password', '@secret.txt'],
  'password:reset': ['--link', '@secret.txt', '--password', '@secret.txt'],
  'sso:create': [
    '--name',
    'Entra',
    '--type',
    'oidc',
    '--preset',
    'azure-ad',
    '--issuer',
    'https://id.example.com',
  ],
}

/** The first example of a command as a command line, with IDs in place of names. */
export function typed(id: string, { examples, args, flags }: Command): string[] {
  const line = (examples[0] ?? '').split('\n').find((one) => one.includes('svc ')) ?? ''
  const words = [...line.slice(line.indexOf('svc ') + 4).matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g)].map(
    ([word]) => word.replace(/'([^']*)'|"([^"]*)"/g, '$1$2'),
  )
  const name = id.split(':')
  const own = words.slice(0, name.length).join(' ') === name.join(' ') ? words.slice(name.length) : []
  const isSpoken = (arg: string) => spoken.test(arg) || /^(help|config|context)\b/.test(id)
  const left = Object.keys(args)
  const said: string[] = []
  for (let at = 0; at < own.length && !/^\d?[|<>&]/.test(own[at]!); at += 1) {
    const word = own[at]!
    if (looks.test(word)) continue
    if (looksWithValue.test(word)) at += 1
    else if (records.test(word)) {
      said.push(word, uuid)
      at += 1
    } else if (word === '-' || word.startsWith('@')) said.push('@secret.txt')
    else if (word.startsWith('-') || own[at - 1]?.startsWith('--')) said.push(word)
    else if (left.length > 0) said.push(isSpoken(left.shift()!) ? word : uuid)
  }
  const agreed = 'yes' in flags && !said.includes('--yes') ? ['--yes'] : []
  return [...name, ...said, ...(more[id] ?? []), ...agreed]
}
