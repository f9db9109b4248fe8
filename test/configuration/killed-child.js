// Loaded before the program by kills.test.ts: the process kills itself at one step of the first apply, with no chance to tidy up.
import { createRequire } from 'node:module'
import { Socket } from 'node:net'
import { isMainThread } from 'node:worker_threads'

/** The number of a change and of a statement of it; or `commit`: before it is asked for, or `committed`: right after that. */
const [where = '', statement = '0'] = (process.env.KILLED_AT ?? '').split(':')
const begin = 'insert into "config_sets"'

let change = -1
let statements = 0

const die = () => process.kill(process.pid, 'SIGKILL')

/** Of the transaction of the apply. Each change has a savepoint of its own. */
function aboutToRun(sql) {
  if (sql === 'savepoint nested') {
    change += 1
    statements = 0
  } else statements += 1
  // A change has as many statements as it has: after the last one comes the next change.
  const isHere = change > Number(where) || (String(change) === where && statements >= Number(statement))
  if (sql === 'commit' ? where === 'commit' : isHere) die()
}

function watchSqlite() {
  const Database = createRequire(import.meta.url)('better-sqlite3')
  const database = new Database(':memory:')
  const prototype = Object.getPrototypeOf(database.prepare('select 1'))
  database.close()
  let hasBegun = false
  for (const name of ['run', 'all']) {
    const original = prototype[name]
    prototype[name] = function (...args) {
      const { source } = this
      hasBegun ||= source.startsWith(begin)
      if (hasBegun) aboutToRun(source)
      const result = original.apply(this, args)
      if (hasBegun && source === 'commit' && where === 'committed') die()
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
    const sql = /^[PQ][\s\S]{4}\0?(savepoint nested|commit)\0/.exec(message)?.[1]
    // A statement is parsed and bound, or sent as it is.
    const isOne = sql !== undefined || /^[BQ]/.test(message)
    const isOfApply = this === connection && isOne
    if (isOfApply) aboutToRun(sql)
    const result = write.call(this, data, ...rest)
    if (isOfApply && sql === 'commit' && where === 'committed') setImmediate(die)
    return result
  }
}

if (isMainThread && where !== '') {
  if (process.env.DATABASE_URL === undefined) watchSqlite()
  else watchPostgres()
}
