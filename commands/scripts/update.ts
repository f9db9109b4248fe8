import { command } from '../../src/cli/command.ts'
import { scripts } from '../../src/scripts/contract.ts'

export default command(scripts.update, {
  description: 'The version increases when the content changes.',
  examples: [
    'svc scripts update "Clear temporary files" --file clear.sh',
    'svc scripts update "Clear temporary files" --timeout-seconds 600 --category Maintenance',
  ],
})
