// Loaded before the program by kills.test.ts: the process kills itself at one statement of the first apply, with no chance to
// tidy up.
import { writeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Socket } from 'node:net'
import { isMainThread } from 'node:worker_threads'

/** Which statement of the transaction, from 0; or `commit`: before it is asked for, or `committed`: right after that. */
const where = process.env.KILLED_AT ?? ''
const begin = 'insert into "config_sets"'

let statements = 0

const die = () => process.kill(process.pid, 'SIGKILL')

/** Of the transaction of the apply: of one with fewer statements than the test has counted the commit is the last. */
function aboutToRun(isCommit) {
  if (isCommit && where === 'commit') writeSync(2, `\n${statements} statements\n`)
  if (isCommit ? where !== 'committed' : String(statements) === where) die()
  statements += 1
}

function watchSqlite() {
  const Database = createRequire(import.meta.url)('better-sqlite3')
  const made = new Database(':memory:')
  const prototype = Object.getPrototypeOf(made.prepare('select 1'))
  made.close()
  let writer
  for (const name of ['run', 'all', 'get']) {
    const original = prototype[name]
    prototype[name] = function (...args) {
      const { source, database } = this
      if (source.startsWith(begin)) writer ??= database
      const isOfApply = database === writer
      const isCommit = source === 'commit'
      if (isOfApply) aboutToRun(isCommit)
      const result = original.apply(this, args)
      if (isOfApply && isCommit) die()
      return result
    }
  }
}

function watchPostgres() {
  const { write } = Socket.prototype
  let connection
  Socket.prototype.write = function (data, ...rest) {
    const message = Buffer.from(data).toString('latin1')
    if (message.includes(begin)) connection ??= this
    const isCommit = /^[PQ][\s\S]{4}\0?commit\0/.test(message)
    // A statement is parsed and bound, or sent as it is.
    const isOfApply = this === connection && (isCommit || /^[BQ]/.test(message))
    if (isOfApply) aboutToRun(isCommit)
    const result = write.call(this, data, ...rest)
    if (isOfApply && isCommit) setImmediate(die)
    return result
  }
}

if (isMainThread && where !== '') {
  if (process.env.DATABASE_URL === undefined) watchSqlite()
  else watchPostgres()
}
