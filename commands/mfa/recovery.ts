import { command } from '../../src/cli/command.ts'
import { formatRecoveryCodes } from '../../src/cli/mfa.ts'
import { auth } from '../../src/identity/contract.ts'

export default command(auth.newRecoveryCodes, {
  format: formatRecoveryCodes,
  examples: [
    'svc mfa recovery\nRecovery codes, displayed only once; each works once, and earlier codes no longer work:\n  7QX2-M0KD\n  …',
    'svc mfa recovery --jq ".recoveryCodes[]" > recovery-codes.txt',
  ],
})
