import { readFileSync, writeFileSync } from 'node:fs'

// tamper FILE TEXT OTHER: puts OTHER where TEXT stands in an audit entry; both differ in one byte.
const [file, text, other] = process.argv.slice(2)
const bytes = readFileSync(file)
const at = bytes.indexOf(`"action":"${text}"`) + '"action":"'.length
if (at < '"action":"'.length) throw new Error(`${text} is not in ${file}`)
const before = Buffer.from(bytes)
bytes.write(other, at)
const changed = [...bytes].filter((byte, index) => byte !== before[index]).length
writeFileSync(file, bytes)
console.log(`${changed} byte changed`)
