import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.changeMe, {
  description:
    'What is left out stays as it is; null takes a setting out. --settings takes all of them as JSON, the hours of each day included.',
  examples: [
    'svc partners settings --timezone Europe/Paris --date-format DD/MM/YYYY --jq .settings.timezone\nEurope/Paris',
    'svc partners settings --contact-email it@acme.example --contact-phone null',
    `svc partners settings --business-hours-preset custom --settings '{"businessHours": {"custom": {"monday": {"start": "08:00", "end": "17:30"}}}}'`,
    'svc partners settings --name "Acme IT" --dry-run',
  ],
})
