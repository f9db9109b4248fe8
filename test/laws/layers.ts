import { cyclesOf, type Import, importsOf, type Source, withoutComments } from './imports.ts'

/**
 * The capabilities in order: each imports only those to its left. Agents come late because enrolling touches
 * credentials and devices, and all before them are blind to agents; the overview counts what others store, and the
 * configuration sets up what others have.
 */
export const capabilities = [
  'service',
  'tenancy',
  'messages',
  'events',
  'identity',
  'credentials',
  'audit',
  'devices',
  'filters',
  'groups',
  'scripts',
  'alerts',
  'search',
  'logs',
  'live',
  'webhooks',
  'sso',
  'trust',
  'agents',
  'overview',
  'configuration',
] as const

export type Broken = { path: string; rule: string; why: string }

type Zone =
  | 'core'
  | 'storage'
  | 'handler'
  | 'api'
  | 'version'
  | 'cli'
  | 'device-agent'
  | 'daemon'
  | 'commands'
  | 'migrations'

/** The zone or capability of a file, if any. */
function placeOf(path: string): { zone?: Zone; capability?: string; file: string } {
  const [top = '', folder = '', ...rest] = path.split('/')
  if (top !== 'src') return { zone: top as Zone, file: [folder, ...rest].join('/') }
  const file = rest.join('/')
  if (rest.length === 0) return { zone: folder.replace(/\.ts$/, '') as Zone, file: folder }
  if (['core', 'storage', 'cli', 'device-agent'].includes(folder)) return { zone: folder as Zone, file }
  return { capability: folder, file }
}

/** Packages that only a server needs, and that would slow a command down. */
const serverPackages =
  /^(fastify|@fastify\/.*|pino.*|kysely|better-sqlite3|pg|@node-rs\/argon2|jose|otplib|nodemailer|@aws-sdk\/.*)$/

const isContract = (target: string): boolean => /^src\/[^/]+\/([^/]+\/)?(contract|lenient)\.ts$/.test(target)
const isVocabulary = (target: string): boolean => target.startsWith('src/core/')

/** Named exceptions: the service itself, and commands on its data directory. */
const lazyServer = (path: string): boolean =>
  ['commands/serve.ts', 'commands/doctor.ts'].includes(path) ||
  /^commands\/serve\/(install|health)\.ts$/.test(path) ||
  /^commands\/(db|dev|secrets)\//.test(path)
const chainReader = 'commands/audit/verify.ts'
/** Pure code for verification, so that an auditor need not trust the server. */
const verifier = /^src\/audit\/(chain|verifier\/[a-z-]+)\.ts$/
/** Pure code about releases, shared by agent and service. */
const releases = /^src\/agents\/versions\/(manifest|semver|upgrade-path)\.ts$/
/** Generates one-time passwords for scripts. */
const authenticator = 'src/cli/otp-secret.ts'
/** Loads the requested command from the manifest. */
const commandLoader = 'src/cli/program.ts'

/** Named exceptions: files whose very subject is which database it is, with the reason. */
export const databaseChoosers: Readonly<Record<string, string>> = {
  'daemon/config.ts': 'reads DATABASE_URL and --to, with which a person chooses the database',
  'daemon/backup/format.ts': 'the head of an archive says which database it was made of',
}

type Rule = { name: string; applies(path: string): boolean; allows(path: string, it: Import): boolean }

const inZone =
  (...zones: Zone[]) =>
  (path: string): boolean =>
    zones.some((zone) => placeOf(path).zone === zone)
const inCapability = (path: string): boolean => placeOf(path).capability !== undefined
const named = (path: string, file: string): boolean =>
  inCapability(path) && placeOf(path).file.split('/').at(-1) === file

/** Itself or a capability to its left. */
function reachable(path: string, target: string): boolean {
  const order: readonly string[] = capabilities
  const { capability: from = '' } = placeOf(path)
  const { capability: to = '' } = placeOf(target)
  return from === to || (order.includes(to) && order.indexOf(to) < order.indexOf(from))
}

/** Rules for imports of our own files. */
const ownImports: Rule[] = [
  {
    name: 'src/core imports only src/core',
    applies: inZone('core'),
    allows: (_, { target }) => isVocabulary(target),
  },
  {
    name: 'src/storage imports only src/core and itself',
    applies: inZone('storage'),
    allows: (_, { target }) => isVocabulary(target) || target.startsWith('src/storage/'),
  },
  {
    name: 'src/api.ts imports only contracts and core, src/version.ts only core',
    applies: inZone('api', 'version'),
    allows: (path, { target }) => isVocabulary(target) || (path === 'src/api.ts' && isContract(target)),
  },
  {
    name: 'src/handler.ts imports the vocabulary, and types of the storage',
    applies: inZone('handler'),
    allows: (_, { target, typeOnly }) =>
      isVocabulary(target) || (typeOnly && target.startsWith('src/storage/')),
  },
  {
    name: 'a capability imports core, storage, src/handler.ts, src/version.ts and capabilities to its left',
    applies: inCapability,
    allows: (path, { target }) =>
      isVocabulary(target) ||
      target.startsWith('src/storage/') ||
      target === 'src/handler.ts' ||
      target === 'src/version.ts' ||
      (inCapability(target) && reachable(path, target)),
  },
  {
    name: 'contract.ts and lenient.ts import only core and other contracts',
    applies: (path) => named(path, 'contract.ts') || named(path, 'lenient.ts'),
    allows: (_, { target }) => isVocabulary(target) || isContract(target) || releases.test(target),
  },
  {
    name: 'rules.ts runs on core, contracts and other rules alone',
    applies: (path) => named(path, 'rules.ts'),
    allows: (_, { target, typeOnly }) =>
      typeOnly ||
      isVocabulary(target) ||
      isContract(target) ||
      /\/rules\.ts$/.test(target) ||
      releases.test(target),
  },
  {
    name: 'a store knows no handlers',
    applies: (path) => named(path, 'store.ts'),
    allows: (_, { target }) => target !== 'src/handler.ts' && !target.endsWith('/handlers.ts'),
  },
  {
    name: 'what only one database has is imported by src/storage alone',
    applies: (path) => !inZone('storage')(path),
    allows: (_, { target }) => !/^src\/storage\/(?:.*[/-])?(?:sqlite|postgres)\b/.test(target),
  },
  {
    name: 'a password is held against an account by the password guard alone, where wrong ones are counted',
    applies: (path) => path !== 'src/identity/password-guard/guard.ts',
    allows: (_, { target }) => target !== 'src/identity/password-guard/verify.ts',
  },
  {
    name: 'the daemon knows nothing of the command line',
    applies: inZone('daemon'),
    allows: (_, { target }) => !/^(commands|src\/cli|src\/device-agent)\//.test(target),
  },
  {
    name: 'commands see contracts and src/cli, never a server or a database',
    applies: inZone('commands'),
    allows: (path, { target, lazy }) =>
      clientMaySee(target) ||
      /^(commands|src\/cli|src\/device-agent)\//.test(target) ||
      (lazy && lazyServer(path) && target.startsWith('daemon/')) ||
      (path === chainReader && verifier.test(target)),
  },
  {
    name: 'src/cli sees contracts only',
    applies: inZone('cli'),
    allows: (_, { target, typeOnly }) =>
      clientMaySee(target) || target.startsWith('src/cli/') || (typeOnly && verifier.test(target)),
  },
  {
    name: 'src/device-agent sees contracts and src/cli only',
    applies: inZone('device-agent'),
    allows: (_, { target }) => clientMaySee(target) || /^src\/(device-agent|cli)\//.test(target),
  },
  {
    name: 'a migration outlives the code: it imports only storage/columns.ts',
    applies: inZone('migrations'),
    allows: (path, { target, typeOnly }) =>
      (typeOnly && target === 'src/storage/columns.ts') ||
      (/^migrations\/(index|all)\.ts$/.test(path) &&
        (target.startsWith('migrations/') || (typeOnly && target === 'src/storage/migrate.ts'))),
  },
]

/** Texts only, which a page on the user's machine must not take from a URL. */
const signInFailures = 'src/sso/failures.ts'

const clientMaySee = (target: string): boolean =>
  isVocabulary(target) ||
  isContract(target) ||
  releases.test(target) ||
  [signInFailures, 'src/api.ts', 'src/version.ts'].includes(target)

/** Rules for packages and modules of Node. */
const hashing: readonly string[] = ['src/identity/password-hash.ts', 'src/identity/password-guard/verify.ts']

const packageImports: Rule[] = [
  {
    name: 'passwords are hashed in one place, and verified in one',
    applies: (path) => !hashing.includes(path),
    allows: (_, { target }) => target !== '@node-rs/argon2',
  },
  {
    name: 'client code loads no package of the server',
    applies: inZone('core', 'api', 'cli', 'device-agent', 'commands'),
    allows: (path, { target }) =>
      !serverPackages.test(target) || (path === authenticator && target === 'otplib'),
  },
  {
    name: 'rules.ts does no I/O',
    applies: (path) => named(path, 'rules.ts'),
    allows: (_, { target }) => !target.startsWith('node:') || target === 'node:crypto',
  },
  {
    name: 'contract.ts needs zod alone',
    applies: (path) => named(path, 'contract.ts') || named(path, 'lenient.ts'),
    allows: (_, { target }) => target === 'zod',
  },
  {
    name: 'a migration needs kysely alone',
    applies: inZone('migrations'),
    allows: (_, { target }) => target === 'kysely',
  },
  {
    name: 'every import can be read from the text',
    applies: () => true,
    allows: (path, { target }) => path === commandLoader || !target.startsWith('a computed import'),
  },
]

const anyOf = (...forms: RegExp[]): RegExp => new RegExp(forms.map(({ source }) => source).join('|'))
const mayNotChooseDatabase = (path: string): boolean =>
  !inZone('storage', 'migrations')(path) && !(path in databaseChoosers)

type TextRule = { name: string; applies(path: string): boolean; forbids: RegExp }

const texts: TextRule[] = [
  {
    name: 'rules.ts waits for nothing',
    applies: (path) => named(path, 'rules.ts'),
    forbids: /\basync\b|\bawait\b|\bPromise\b/,
  },
  {
    name: 'rules.ts is told the time',
    applies: (path) => named(path, 'rules.ts'),
    forbids: /\bDate\.now\(|\bnew Date\(\)|\bperformance\.|\bMath\.random\(/,
  },
  {
    name: 'of the server, only daemon/config.ts reads the environment',
    applies: (path) =>
      (inZone('daemon', 'core', 'storage', 'handler', 'migrations')(path) || inCapability(path)) &&
      path !== 'daemon/config.ts',
    forbids: /\bprocess\.env\b/,
  },
  {
    name: 'a command leaves the environment to src/cli',
    applies: inZone('commands'),
    forbids: /\bprocess\.env\b/,
  },
  {
    name: 'only src/storage and migrations know which database it is',
    applies: (path) => !inZone('storage', 'migrations')(path),
    forbids: /\bdialect\b|\b(?:dialectTraits|byDialect|isPostgres|isSqlite)\b/,
  },
  {
    name: 'outside src/storage and migrations no value is the name of a database',
    applies: mayNotChooseDatabase,
    // Also at the start of a pattern, and as a key: `postgres` alone is a key of the options of openStorage.
    forbids: anyOf(
      /(['"`])(?:sqlite|SQLite|[pP]ostgres(?:ql|QL)?)[: /]*\1/,
      /[\s(!=,]\/\^?(?:sqlite|SQLite|[pP]ostgres(?:ql|QL)?)\b/,
      /\bsqlite:/,
    ),
  },
  {
    name: 'outside src/storage and migrations nothing depends on whether there is a databaseUrl',
    applies: mayNotChooseDatabase,
    forbids: anyOf(
      // Compared, or asked for its truth, from either side.
      /\bdatabaseUrl!?\s*(?:[=!]==?|&&|\|\||\?(?!:))/,
      /(?:[=!]==?|!|\b(?:if|while) \(|\bBoolean\(|\btypeof\b)\s*(?:[\w$]+[?!]?\.)*databaseUrl\b/,
      /['"]databaseUrl['"]\s*(?:\]|in\b|\))/,
      /DATABASE_URL(?:['"]\])?\s*(?:[=!]==?|&&|\|\||\?)/,
      // Taken under another name, or with a default.
      /(?:\b(?:const|let)|[(,])\s*\{[^{}]*\bdatabaseUrl\s*(?::|=(?!=))[^{}]*\}\s*(?:[=:]|\)\s*=>)/,
      /\b(?:const|let) \w+ = (?:[\w$]+[?!]?\.)+databaseUrl\b/,
    ),
  },
  {
    name: 'text becomes code in storage/schema/rows.ts alone',
    applies: (path) => path !== 'src/storage/schema/rows.ts',
    forbids: /\bnew Function\b|\beval\(/,
  },
]

/** Every breach of the layers in these files. */
export function breachesOf(sources: readonly Source[]): Broken[] {
  const broken: Broken[] = []
  for (const source of sources) {
    const { path } = source
    const { capability } = placeOf(path)
    if (capability !== undefined && !(capabilities as readonly string[]).includes(capability)) {
      broken.push({ path, rule: 'every folder of src has its place in the order', why: capability })
    }
    for (const it of importsOf(source)) {
      for (const rule of it.ours ? ownImports : packageImports) {
        if (rule.applies(path) && !rule.allows(path, it))
          broken.push({ path, rule: rule.name, why: it.target })
      }
    }
    const code = withoutComments(source.text)
    for (const rule of texts) {
      const found = rule.applies(path) ? rule.forbids.exec(code) : null
      if (found) broken.push({ path, rule: rule.name, why: found[0] })
    }
  }
  for (const cycle of cyclesOf(sources)) {
    broken.push({ path: cycle[0]!, rule: 'no import goes round in a circle', why: cycle.join(' → ') })
  }
  return broken
}

export const ruleNames: readonly string[] = [
  ...[...ownImports, ...packageImports, ...texts].map((rule) => rule.name),
  'every folder of src has its place in the order',
  'no import goes round in a circle',
]
