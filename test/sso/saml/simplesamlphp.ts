import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import type { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { nameIdFormats } from '../../../src/sso/saml/names.ts'
import { listening } from '../../cli/network.ts'
import { type KeyPair, rsaKeys, selfSigned } from './certificate.ts'

/* A third-party identity provider: SimpleSAMLphp, as packaged by Debian. */

const program = '/usr/share/simplesamlphp/www'
const needed = 'exit(extension_loaded("dom") && extension_loaded("mbstring") ? 0 : 1);'

export const hasSimplesamlphp =
  existsSync(join(program, 'module.php')) && spawnSync('php', ['-r', needed]).status === 0
if (!hasSimplesamlphp) {
  console.warn(
    'skipped: an identity provider of others needs simplesamlphp, php-cli, php-xml and php-mbstring',
  )
}

/** The one user of the provider. */
export const person = {
  password: 'a loaf of rye',
  mail: 'jo@bakery.example.com',
  displayName: 'Jo Bäcker',
  groups: ['bakers', 'early birds & <others>'],
}

/** The settings of the provider: what it knows of this service, and how it answers. */
export type Settings = {
  entityId: string
  acsUrl: string
  /** Metadata of this service, which replace the two settings above. */
  metadata?: string
  signs?: 'assertion' | 'response' | 'both'
  /** The algorithm of the signature. */
  algorithm?: string
  nameIdFormat?: string
  /** The certificate for which it encrypts assertions. */
  encryptsFor?: X509Certificate
}

type Posted = { SAMLResponse: string; RelayState: string }

export type OtherProvider = {
  entityId: string
  ssoUrl: string
  /** PEM */
  certificate: string
  /** Signs the user in at `url`, and returns what the browser posts to this service. */
  signIn(url: string): Promise<Posted>
  set(settings: Settings): void
  stop(): Promise<void>
}

/** Its configured public address; requests actually go to a port of this machine. */
const base = 'https://simplesamlphp.test/'
const entityId = `${base}metadata`

export async function startIdentityProvider(
  settings: Settings,
  { privateKey, publicKey }: KeyPair = rsaKeys(),
): Promise<OtherProvider> {
  const certificate = selfSigned({ privateKey, publicKey }).toString()
  const folder = mkdtempSync(join(tmpdir(), 'svc-simplesamlphp-'))
  for (const name of folders) mkdirSync(join(folder, name))
  writeFileSync(join(folder, 'cert', 'idp.key'), privateKey.export({ type: 'pkcs8', format: 'pem' }))
  writeFileSync(join(folder, 'cert', 'idp.crt'), certificate)
  writeConfig(folder)
  writeMetadata(folder, settings)
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}/`
  const server = spawn('php', ['-S', `127.0.0.1:${port}`, '-t', program], {
    env: { ...process.env, SIMPLESAMLPHP_CONFIG_DIR: join(folder, 'config') },
    stdio: 'ignore',
  })
  const self = {
    entityId,
    ssoUrl: `${base}saml2/idp/SSOService.php`,
    certificate,
    signIn: (url: string) => signedIn(url, origin),
    set: (changed: Settings) => writeMetadata(folder, changed),
    stop: async () => {
      await ended(server)
      rmSync(folder, { recursive: true })
    },
  }
  try {
    await answering(origin, server)
    return self
  } catch (error) {
    await self.stop()
    throw error
  }
}

const folders = ['config', 'metadata', 'cert', 'log', 'data', 'tmp', 'sessions']

/** PHP reads the value as JSON, so that no value has to be written as PHP. */
function write(path: string, value: unknown, php: string): void {
  const json = Buffer.from(JSON.stringify(value)).toString('base64')
  writeFileSync(path, `<?php\n$said = json_decode(base64_decode('${json}'), true);\n${php}\n`)
}

function writeConfig(folder: string): void {
  const at = (name: string) => join(folder, name, '/')
  const config = {
    baseurlpath: base,
    certdir: at('cert'),
    loggingdir: at('log'),
    datadir: at('data'),
    tempdir: at('tmp'),
    metadatadir: at('metadata'),
    'metadata.sources': [{ type: 'flatfile' }],
    timezone: 'UTC',
    secretsalt: 'another than the default',
    'auth.adminpassword': 'another than the default',
    'enable.saml20-idp': true,
    'module.enable': { exampleauth: true },
    'language.default': 'en',
    'logging.handler': 'file',
    'logging.logfile': 'simplesamlphp.log',
    'store.type': 'phpsession',
    'session.cookie.secure': false,
    'session.phpsession.savepath': at('sessions'),
  }
  write(join(folder, 'config', 'config.php'), config, '$config = $said;')
  const { password, ...attributes } = person
  const people = { [`jo:${password}`]: attributes }
  const php = "$config = ['people' => ['exampleauth:UserPass'] + $said];"
  write(join(folder, 'config', 'authsources.php'), people, php)
}

/** The metadata are read again at every request. */
function writeMetadata(folder: string, settings: Settings): void {
  const { acsUrl: AssertionConsumerService, metadata, algorithm, signs = 'both', encryptsFor } = settings
  const NameIDFormat = settings.nameIdFormat ?? nameIdFormats.email
  const itself = {
    host: '__DEFAULT__',
    auth: 'people',
    privatekey: 'idp.key',
    certificate: 'idp.crt',
    'saml20.sign.response': signs !== 'assertion',
    'saml20.sign.assertion': signs !== 'response',
    ...(algorithm && { 'signature.algorithm': algorithm }),
    authproc: { 1: { class: 'saml:AttributeNameID', attribute: 'mail', Format: NameIDFormat } },
  }
  const hosted = join(folder, 'metadata', 'saml20-idp-hosted.php')
  write(hosted, { [entityId]: itself }, '$metadata = $said;')
  const certData = encryptsFor?.raw.toString('base64')
  const partner = {
    AssertionConsumerService,
    NameIDFormat,
    ...(certData && { 'assertion.encryption': true, certData }),
  }
  const ours = join(folder, 'metadata', 'saml20-sp-remote.php')
  if (metadata === undefined) write(ours, { [settings.entityId]: partner }, '$metadata = $said;')
  else write(ours, metadata, parsing)
}

const parsing = `$parser = SimpleSAML\\Metadata\\SAMLParser::parseString($said);
$metadata[$parser->getEntityId()] = $parser->getMetadata20SP();`

/** A browser that follows redirects, keeps cookies, and fills in the login form. */
async function signedIn(start: string, origin: string): Promise<Posted> {
  const cookies = new Map<string, string>()
  let url = start
  let form: URLSearchParams | undefined
  for (let steps = 0; steps < 10; steps += 1) {
    const reply = await fetch(url.replace(base, origin), {
      method: form ? 'POST' : 'GET',
      body: form ?? null,
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    })
    for (const cookie of reply.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie)!
      cookies.set(name!, value!)
    }
    form = undefined
    const location = reply.headers.get('location')
    const page = await reply.text()
    const { action, fields } = formIn(page)
    if (location !== null) url = new URL(location, url).href
    else if (fields.has('SAMLResponse')) {
      return { SAMLResponse: fields.get('SAMLResponse')!, RelayState: fields.get('RelayState') ?? '' }
    } else if (fields.has('AuthState')) {
      url = new URL(action, url).href
      form = fields
      form.set('username', 'jo')
      form.set('password', person.password)
    } else
      throw new Error(
        `${url} answered ${reply.status}: ${page.replaceAll(/<[^>]*>|\s+/g, ' ').slice(0, 1000)}`,
      )
  }
  throw new Error('it sends the browser round in circles')
}

/** The form of a page with its prefilled values. */
function formIn(page: string): { action: string; fields: URLSearchParams } {
  const of = (tag: string, name: string) => {
    const value = new RegExp(`\\s${name}="([^"]*)"`, 's').exec(tag)?.[1] ?? ''
    return value.replaceAll(/&(?:#(\d+)|#x([0-9a-f]+)|(amp|lt|gt|quot));/gi, (_, decimal, hex, name) =>
      name
        ? { amp: '&', lt: '<', gt: '>', quot: '"' }[name as string]!
        : String.fromCodePoint(decimal ? Number(decimal) : Number.parseInt(hex, 16)),
    )
  }
  const [form = ''] = /<form[^>]*>/.exec(page) ?? []
  const fields = [...page.matchAll(/<input[^>]*>/g)].map(([input]) => [of(input, 'name'), of(input, 'value')])
  return { action: of(form, 'action'), fields: new URLSearchParams(fields.filter(([name]) => name !== '')) }
}

async function freePort(): Promise<number> {
  const server = createServer()
  const port = await listening(server)
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function answering(origin: string, server: ChildProcess): Promise<void> {
  for (let tries = 0; tries < 400; tries += 1) {
    if (server.exitCode !== null) throw new Error(`php ended with ${server.exitCode}`)
    if (await fetch(`${origin}logout.php`).catch(() => undefined)) return
    await wait(25)
  }
  throw new Error('php does not answer')
}

async function ended(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return
  const exit = once(server, 'exit')
  server.kill()
  await exit
}
