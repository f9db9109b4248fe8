import { command } from '../../src/cli/command.ts'
import { partners } from '../../src/tenancy/contract.ts'

export default command(partners.changeMe, {
  description:
    'Settings that are not given do not change; null removes one. --settings accepts all of them as JSON, including the hours of each day.',
  examples: [
    'svc partners settings --timezone Europe/Paris --date-format DD/MM/YYYY --jq .settings.timezone\nEurope/Paris',
    'svc partners settings --contact-email it@acme.example --contact-phone null',
    `svc partners settings --business-hours-preset custom --settings '{"businessHours": {"custom": {"monday": {"start": "08:00", "end": "17:30"}}}}'`,
    'svc partners settings --name "Acme IT" --dry-run',
  ],
})
