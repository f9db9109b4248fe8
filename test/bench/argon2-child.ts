// Bare password checks: node argon2-child.ts <at a time> <milliseconds>; prints checks per second.
import { verifyPassword } from '../../src/identity/password-guard/verify.ts'
import { hashPassword } from '../../src/identity/password-hash.ts'

const [lanes = '8', milliseconds = '1000'] = process.argv.slice(2)
const password = 'correct horse battery staple'
const hashed = await hashPassword(password)
const begin = performance.now()
let checks = 0
await Promise.all(
  Array.from({ length: Number(lanes) }, async () => {
    while (performance.now() - begin < Number(milliseconds)) {
      if (!(await verifyPassword(hashed, password))) throw new Error('The password is not right')
      checks += 1
    }
  }),
)
process.stdout.write(`${JSON.stringify({ perSecond: checks / ((performance.now() - begin) / 1000) })}\n`)
