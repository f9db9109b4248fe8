// Reads its configuration at a given millisecond, to race with other processes, and prints the secrets.
import { readConfig } from '../../daemon/config.ts'

const [, , dataDir, at] = process.argv
while (Date.now() < Number(at));
process.stdout.write(JSON.stringify(readConfig({}, { 'data-dir': dataDir }).secrets))
