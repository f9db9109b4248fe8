// Reads its configuration at a given millisecond, to race with others, and prints the secrets it got.
import { readConfig } from '../../daemon/config.ts'

const [, , dataDir, at] = process.argv
while (Date.now() < Number(at));
process.stdout.write(JSON.stringify(readConfig({}, { 'data-dir': dataDir }).secrets))
