// Writes the man pages into dist/man, after the build: one for svc, one for each command and topic, and those of man/, two of
// which get a table from the code. remark turns Markdown into roff. package.json lists them all: npm
// installs no page that it does not list.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import remarkGfm from 'remark-gfm'
import remarkMan from 'remark-man'
import remarkParse from 'remark-parse'
import { unified } from 'unified'
import { withFieldTables } from './src/cli/config/field-tables.ts'
import { topicDescriptions as topics } from './src/cli/topics.ts'
import { withEventTable } from './src/cli/webhooks/event-table.ts'

/** Stands for an @ in a cell: remark-man divides cells with @. */
const at = '\ue000'
const root = fileURLToPath(new URL('.', import.meta.url))
const pjson = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const { version } = pjson
const written = []
const manifest = JSON.parse(readFileSync(join(root, 'oclif.manifest.json'), 'utf8'))
const commands = Object.values(manifest.commands).filter(({ hidden }) => !hidden)
const others = readdirSync(join(root, 'man')).map((file) => {
  const [name, section] = file.split('.')
  return { name, section, text: readFileSync(join(root, 'man', file), 'utf8') }
})

derive('svc-config', withFieldTables)
derive('svc-webhooks', withEventTable)

rmSync(join(root, 'dist/man'), { recursive: true, force: true })
// The title of a page is the line that man prints at the top.
for (const { name, section, text } of others) write(name, section, text.replace(/^# .*\n/, ''))
write('svc', '1', overview())
for (const id of new Set([...commands.map((command) => command.id), ...Object.keys(topics)])) {
  write(`svc-${id.replaceAll(':', '-')}`, '1', pageOf(id))
}
list(written.sort())

/** Writes anew what a page of man/ has from the code. */
function derive(page, rewrite) {
  const it = others.find(({ name }) => name === page)
  it.text = rewritten(`man/${page}.${it.section}.md`, rewrite(it.text))
}

function write(name, section, markdown) {
  const folder = `dist/man/man${section}`
  const file = `${folder}/${name}.${section}`
  mkdirSync(join(root, folder), { recursive: true })
  writeFileSync(join(root, file), toRoff(name, section, markdown))
  written.push(file)
}

function list(man) {
  rewritten('package.json', `${JSON.stringify({ ...pjson, man }, null, 2)}\n`)
}

/** Only where it changes: the build looks at the time of the file. */
function rewritten(file, text) {
  const path = join(root, file)
  if (readFileSync(path, 'utf8') !== text) writeFileSync(path, text)
  return text
}

function toRoff(name, section, markdown) {
  const options = { name, section, version: `svc ${version}`, manual: 'svc manual', date: '1970-01-01' }
  const roff = unified()
    .use(remarkParse)
    .use(remarkGfm)
    .use(() => (tree) => visit(tree, { isCell: false }))
    .use(remarkMan, options)
    .processSync(markdown)
  return (
    String(roff)
      // The date of a build would make two builds of one source differ.
      .replace(/^\.TH .*$/m, `.TH "${name.toUpperCase()}" "${section}" "" "svc ${version}" "svc manual"`)
      .replace(/^\.SH "NAME"\n.*\n(?=\.SH "NAME"\n)/m, '')
      .replace(/(^\.S[HS] .*\n)\.P\n/gm, '$1')
      .replace(/^\.TS\n(?:.*\n){3}([\s\S]*?)^\.TE$/gm, (_, rows) => definitions(rows))
      .replace(/^\.PP?\n(?=\.(?:SH|SS|TP|PP?)\b)/gm, '')
      .replace(/\.PP?\n?$/, '')
      // With a level, the inner list would end the outer one too.
      .replaceAll('.RE 0', '.RE')
      .replaceAll(at, '\\(at')
  )
}

function visit(node, { isCell }) {
  if (isCell && typeof node.value === 'string') node.value = node.value.replaceAll('@', at)
  for (const child of node.children ?? []) visit(child, { isCell: isCell || node.type === 'tableCell' })
}

/** A table as a list of its first cells, each followed by the others: no table is too wide for 80 columns. */
function definitions(rows) {
  const [head = [], ...cells] = rows
    .trimEnd()
    .split('\n')
    .map((row) => row.split('@'))
  const items = cells.map(([term, ...others]) => {
    const told = others.map((text, n) =>
      others.length > 1 && text ? `\\fI${head[n + 1]}\\fR: ${text}` : text,
    )
    return `.TP\n${term}\n${told.filter(Boolean).join('\n.br\n')}`
  })
  return `${items.join('\n')}\n.PP`
}

/** Markdown would read these as formatting. */
function plain(text) {
  return text.replace(/([\\`*_{}[\]<>#|~])/g, '\\$1')
}
function code(text) {
  return `\`${text}\``
}

function overview() {
  const first = (id) => !id.includes(':')
  const groups = Object.keys(topics).filter(first)
  const single = commands.filter(({ id }) => first(id) && !groups.includes(id))
  const rows = [
    ...groups.map((id) => [id, topics[id]]),
    ...single.map(({ id, summary }) => [id, summary ?? '']),
  ].sort(([a], [b]) => (a < b ? -1 : 1))
  return `## Name

svc - administration tool and daemon of a multi-tenant device management service

## Synopsis

\`svc\` *COMMAND* [*ARGUMENTS*] [*FLAGS*]

## Description

\`svc serve\` runs the service on embedded SQLite, or on Postgres. All other commands call a service, or look after an installation on this
machine. \`svc help COMMAND\` and \`man svc-COMMAND\` explain a command.

## Commands

| Command | What it does |
|---|---|
${rows.map(([id, text]) => `| **svc-${id}**(1) | ${plain(text)} |`).join('\n')}

## Exit status

\`svc help exit-codes\` lists them: 0 for success, 1 for a failure or the answer no, 2 for a wrong command line.

## Environment

\`svc help environment\` lists the variables.

## See also

${others.map(({ name, section }) => `**${name}**(${section})`).join(', ')}
`
}

function pageOf(id) {
  const command = commands.find((one) => one.id === id)
  const name = id.replaceAll(':', ' ')
  const below = [
    ...new Set(
      commands
        .map((one) => one.id)
        .filter((other) => other.startsWith(`${id}:`))
        .map((other) =>
          other
            .split(':')
            .slice(0, id.split(':').length + 1)
            .join(':'),
        ),
    ),
  ].sort()
  const summaryOf = (other) => topics[other] ?? commands.find((one) => one.id === other)?.summary ?? ''
  const parts = [`## Name\n\nsvc-${id.replaceAll(':', '-')} - ${plain(command?.summary ?? topics[id] ?? '')}`]
  const args = Object.values(command?.args ?? {}).filter(({ hidden }) => !hidden)
  const flags = Object.values(command?.flags ?? {}).filter(({ hidden }) => !hidden)
  const usage = args.map((arg) =>
    arg.required ? `*${arg.name.toUpperCase()}*` : `[*${arg.name.toUpperCase()}*]`,
  )
  if (command)
    parts.push(
      `## Synopsis\n\n${[code(`svc ${name}`), ...usage, flags.length > 0 ? '[*FLAGS*]' : ''].join(' ')}`,
    )
  if (command?.description) parts.push(`## Description\n\n${paragraphs(command.description)}`)
  if (below.length > 0)
    parts.push(
      `## Commands\n\n${table(below.map((other) => [`**svc-${other.replaceAll(':', '-')}**(1)`, plain(summaryOf(other))]))}`,
    )
  if (args.length > 0)
    parts.push(
      `## Arguments\n\n${table(args.map((arg) => [`*${arg.name.toUpperCase()}*`, plain(arg.description ?? '')]))}`,
    )
  for (const [title, group] of [
    ['Flags', undefined],
    ['Output flags', 'output'],
    ['Connection flags', 'connection'],
  ]) {
    const own = flags.filter(({ helpGroup }) => helpGroup === group)
    if (own.length > 0)
      parts.push(`## ${title}\n\n${table(own.map((flag) => [termOf(flag), plain(flag.description ?? '')]))}`)
  }
  if (command?.examples?.length)
    parts.push(`## Examples\n\n${command.examples.map((example) => indented(textOf(example))).join('\n\n')}`)
  parts.push('## See also\n\n**svc**(1)')
  return `${parts.join('\n\n')}\n`
}

/** Lines that are laid out by hand stay as they are. */
function paragraphs(text) {
  return text
    .split(/\n{2,}/)
    .map((part) => (/\S {2,}\S/.test(part) ? indented(part) : plain(part)))
    .join('\n\n')
}

function table(rows) {
  return `| | |\n|---|---|\n${rows.map(([a, b]) => `| ${a} | ${b.replaceAll('\n', ' ')} |`).join('\n')}`
}

function termOf(flag) {
  const value = [
    flag.helpValue ?? (flag.type === 'option' ? (flag.options?.join('|') ?? 'VALUE') : ''),
  ].flat()[0]
  const name = `${flag.char ? `**-${flag.char}**, ` : ''}**--${flag.allowNo ? '[no-]' : ''}${flag.name}**`
  return value ? `${name} *${plain(value)}*` : name
}

function textOf(example) {
  return typeof example === 'string' ? example : `${example.description}\n${example.command}`
}

function indented(text) {
  return text.replace(/^/gm, '    ')
}
