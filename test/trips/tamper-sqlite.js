import { readFileSync, writeFileSync } from 'node:fs'

// tamper FILE TEXT OTHER: puts OTHER where TEXT stands in an audit entry; both differ in one byte. A sealed entry
// begins with its action; what is left of the outbox does not.
const [file, text, other] = process.argv.slice(2)
const bytes = readFileSync(file)
const begin = '{"action":"'
const at = bytes.indexOf(`${begin}${text}"`) + begin.length
if (at < begin.length) throw new Error(`${text} is not in ${file}`)
const before = Buffer.from(bytes)
bytes.write(other, at)
const changed = [...bytes].filter((byte, index) => byte !== before[index]).length
writeFileSync(file, bytes)
console.log(`${changed} byte changed`)
