import pg from 'pg'

// tamper TEXT OTHER: the same in Postgres, by an administrator who puts the triggers aside.
const [text, other] = process.argv.slice(2)
const client = new pg.Client(process.env.DATABASE_URL)
await client.connect()
await client.query('alter table audit_logs disable trigger user')
const { rowCount } = await client.query(
  `update audit_logs set canonical = replace(canonical, $1, $2) where position($1 in canonical) > 0`,
  [`"action":"${text}"`, `"action":"${other}"`],
)
await client.end()
console.log(`${rowCount} byte changed`)
