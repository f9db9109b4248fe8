// Runs many command lines one after another in one process, on whatever its standard streams are: a start for each would
// take minutes. The file it is given says which; what each wrote, as it reached the stream, is in the file `to`.
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { runHere } from '../cli/run-here.js'

const { runs, config, to } = JSON.parse(readFileSync(process.argv[2], 'utf8'))

const seen = []
const columns = new Map()
for (const one of runs) seen.push({ ...one, ...(await (one.columns ? withColumns(one) : run(one))) })
writeFileSync(to, JSON.stringify(seen))
process.reallyExit(0)

/** Which columns there are is said to whoever names another; what is not a table says nothing. */
async function withColumns(one) {
  if (!columns.has(one.id)) {
    const { text } = await run({ ...one, argv: [...one.columns, '--columns', '?', '--json'] })
    columns.set(one.id, /"hint":"columns: ([^"]+)"/.exec(text)?.[1].replaceAll(', ', ','))
  }
  const known = columns.get(one.id)
  if (known === undefined) return { code: 'none', text: '' }
  return run({ ...one, argv: [...one.argv, '--columns', known] })
}

/** Nothing of one run is there in the next. */
async function run({ argv, url }) {
  rmSync(config.used, { recursive: true, force: true })
  cpSync(config.fresh, config.used, { recursive: true })
  Object.assign(process.env, { SVC_CONFIG_DIR: config.used, SVC_URL: url })
  let text = ''
  const written = (name, chunk) => {
    const stream = process[name]
    text += chunk
    Object.getPrototypeOf(stream).write.call(stream, chunk)
  }
  return { code: await runHere(argv, { longest: 3000, written }), text }
}
