import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Command } from '@oclif/core/command'
import { Config, Plugin } from '@oclif/core/config'
import type { Manifest, PJSON, Topic } from '@oclif/core/interfaces'
import { configDir } from './files.ts'
import { topicDescriptions } from './topics.ts'

type Loadable = Command.Loadable

export type Layout = {
  root: string
  /** Commands as source instead of the compiled ones of the manifest. */
  source?: { target: string; globPatterns: string[] }
}

/** Groups whose deletion has a word of its own, which says what stays: the record of a key, the account of a user. */
const deletions: Readonly<Record<string, string>> = { keys: 'revoke', users: 'remove' }

/** The other spellings of a command: `keys ls` is `keys list`, and `keys rm` is `keys revoke`. */
function othersOf(id: string): string[] {
  const [, group = '', verb = ''] = /^(.+):(\w+)$/.exec(id) ?? []
  const ends = Object.hasOwn(deletions, group) ? [deletions[group]!] : []
  const words = [
    ['list', 'ls'],
    ['delete', 'rm', ...ends],
  ].find((spellings) => spellings.includes(verb))
  return (words ?? []).filter((word) => word !== verb).map((word) => `${group}:${word}`)
}

/** oclif would put the commands of its manifest in order at each start; build.js has done so. */
function fromManifest(root: string): Loadable[] {
  const manifest = JSON.parse(readFileSync(join(root, 'oclif.manifest.json'), 'utf8')) as Manifest
  return Object.values(manifest.commands).map((command) => ({
    ...command,
    load: () => loadCommand(command.id, join(root, ...(command.relativePath ?? []))),
  }))
}

async function loadCommand(id: string, file: string): Promise<Command.Class> {
  const { default: command } = (await import(pathToFileURL(file).href)) as { default: Command.Class }
  return Object.assign(command, { id })
}

async function fromSources(
  root: string,
  pjson: PJSON,
  source: NonNullable<Layout['source']>,
): Promise<Loadable[]> {
  const oclif = { ...pjson.oclif, commands: { strategy: 'pattern' as const, ...source } }
  const plugin = new Plugin({
    root,
    pjson: { ...pjson, oclif },
    isRoot: true,
    type: 'core',
    ignoreManifest: true,
  })
  await plugin.load()
  return plugin.commands
}

/**
 * oclif's configuration, built from package.json and the manifest alone. oclif's own loader searches for
 * plugins, themes, WSL and the parent shell, twice for each command, which costs more than the command.
 */
export class Program extends Config {
  #commands = new Map<string, Loadable>()
  #topics = new Map<string, Topic>()
  #ids: string[] | undefined

  static async open({ root, source }: Layout): Promise<Program> {
    const program = new Program({ root })
    const pjson = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as PJSON
    program.#describe(root, pjson)
    program.#add(source ? await fromSources(root, pjson, source) : fromManifest(root))
    return program
  }

  #describe(root: string, pjson: PJSON): void {
    const { name, version } = pjson
    const platform = process.platform as Config['platform']
    const arch = process.arch as Config['arch']
    Object.assign(this, {
      root,
      pjson,
      name,
      version,
      platform,
      arch,
      bin: 'svc',
      dirname: 'svc',
      valid: true,
    })
    this.userAgent = `${name}/${version} ${platform}-${arch} node-${process.version}`
    this.topicSeparator = ' '
    this.channel = 'stable'
    this.shell = 'sh'
    this.home = homedir()
    this.configDir = configDir()
    this.windows = platform === 'win32'
    this.flexibleTaxonomy = false
  }

  #add(commands: Loadable[]): void {
    for (const command of commands) {
      this.#commands.set(command.id, command)
      const parts = command.id.split(':')
      for (let length = 1; length <= parts.length; length += 1) {
        const name = parts.slice(0, length).join(':')
        if (!this.#topics.has(name))
          this.#topics.set(name, { name, description: topicDescriptions[name] ?? '' })
      }
    }
  }

  override get commands(): Loadable[] {
    return [...this.#commands.values()]
  }

  // oclif asks for them again and again.
  override get commandIDs(): string[] {
    this.#ids ??= [...this.#commands.keys()].flatMap((id) => [id, ...othersOf(id)])
    return this.#ids
  }

  override get topics(): Topic[] {
    return [...this.#topics.values()]
  }

  override getAllCommands(): Loadable[] {
    return this.commands
  }

  override findCommand(id: string, options: { must: true }): Loadable
  override findCommand(id: string, options?: { must: boolean }): Loadable | undefined
  override findCommand(id: string): Loadable | undefined {
    return [id, ...othersOf(id)]
      .map((one) => this.#commands.get(one))
      .find((command) => command !== undefined)
  }

  override findTopic(id: string, options: { must: true }): Topic
  override findTopic(id: string, options?: { must: boolean }): Topic | undefined
  override findTopic(id: string): Topic | undefined {
    return this.#topics.get(id)
  }

  override async runHook(): Promise<never> {
    return { successes: [], failures: [] } as never
  }
}
