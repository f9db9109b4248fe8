import { generateSync } from 'otplib'

// otp SECRET [STEPS AHEAD]
const [secret, ahead = '0'] = process.argv.slice(2)
console.log(generateSync({ secret, epoch: Math.floor(Date.now() / 1000) + 30 * Number(ahead) }))
